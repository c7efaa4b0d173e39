"""An edited configuration file is taken over: regions at once, other sections at the next start."""

import asyncio
from pathlib import Path

import pytest

from moxwell.app.config_reload import ConfigReload, changed_sections, read_record
from moxwell.app.launch_options import LaunchOptions
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.pve import config
from moxwell.pve.regions import Regions
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport

REGION = '- {{url: "https://{0}:8006", region: {0}, token_id: "u@pve!t", token_secret: {1}}}\n'
ONE = "clusters:\n" + REGION.format("north", "s")
ROTATED = "clusters:\n" + REGION.format("north", "other")
TWO = ONE + REGION.format("south", "s")

SECTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "nothing": (ONE, ONE + "# a comment\n", ()),
    "regions only": (ONE, TWO, ()),
    "an address": (ONE, ONE + "control_planes: {address: 127.0.0.1}\n", ("control_planes",)),
    "removed": (ONE + "features: {adoptGuests: [a/b]}\n", ONE, ("features",)),
}


@pytest.mark.parametrize(("before", "after", "sections"), SECTIONS.values(), ids=SECTIONS)
def test_what_waits_for_a_restart(before: str, after: str, sections: tuple[str, ...]) -> None:
    assert changed_sections(before, after) == sections


class Standalone:
    """The regions of an instance, and the file that they come from."""

    def __init__(self, folder: Path, clock: LoopClock) -> None:
        self.file, self.record = folder / "moxwell.yaml", folder / "config-reload.json"
        self.file.write_text(ONE)
        configs = config.load(self.file)
        self.regions = Regions(configs, clock, connect=lambda c: ScriptedTransport(lambda *_: []))
        registry = RegionRegistry(self.regions, configs)
        options = LaunchOptions(name="cloud", config=str(self.file))
        self.reload = ConfigReload(
            options, configs, clock, record=self.record, apply=registry.configure
        )

    async def edit(self, text: str) -> tuple[list[str], list[str]]:
        """The regions and the messages for the user, after an edit and a while."""
        self.file.write_text(text)
        await asyncio.sleep(30)
        return sorted(r.name for r in self.regions.values()), list(read_record(self.record).lines())


def test_an_edited_file_is_taken_over(tmp_path: Path) -> None:
    async def main() -> None:
        made = Standalone(tmp_path, LoopClock())
        watching = asyncio.create_task(made.reload.run())
        assert await made.edit(ONE) == (["north"], [])
        assert await made.edit(TWO) == (["north", "south"], [])
        regions, messages = await made.edit("clusters: 3\n")
        assert regions == ["north", "south"]
        assert "the changed configuration is not used: " in messages[0]
        regions, messages = await made.edit(ONE + "control_planes: {address: 127.0.0.1}\n")
        assert regions == ["north"]
        assert messages == [
            "changes of control_planes take effect at the next start: `moxwell down`, `moxwell up`"
        ]
        before = next(iter(made.regions.values())).config
        assert await made.edit(ROTATED) == (["north"], [])
        assert next(iter(made.regions.values())).config != before
        made.file.unlink()
        await asyncio.sleep(30)
        assert "does not exist" in next(iter(read_record(made.record).lines()))
        assert "other" not in made.record.read_text()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run_virtual(main())
