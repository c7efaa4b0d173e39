"""Who hosts a tenant, how the choice is said and remembered, and templates for its nodes."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.app.launch_options import Wish, check, settled
from moxwell.app.state_dir import Home
from moxwell.cli.optional_values import filled
from moxwell.embedded.controlplanes.control_planes import HostedPlanes
from moxwell.errors import Missing
from moxwell.lab import templates
from moxwell.lab.proxmox import world
from moxwell.pve import config
from moxwell.pve.config import InvalidConfig
from moxwell.runtime.key import Key

LAB = Path(templates.__file__).with_name("lab.yaml")


class Named:
    """A host that only says who it is."""

    def __init__(self, name: str, *keys: Key) -> None:
        self.name, self._keys = name, keys

    def has(self, key: Key) -> bool:
        return key in self._keys

    async def sleep(self, key: Key) -> None:
        raise LookupError(self.name)


OLD, NEW = Key("team", "old"), Key("team", "new")


@pytest.mark.parametrize(
    "key, chosen, born, host",
    [
        pytest.param(NEW, False, "", "embedded", id="new, nothing chosen"),
        pytest.param(NEW, True, "", "genuine", id="new, genuine programs chosen"),
        pytest.param(OLD, True, "embedded", "embedded", id="an embedded one stays embedded"),
        pytest.param(OLD, False, "genuine", "genuine", id="a genuine one stays genuine"),
    ],
)
async def test_a_tenant_stays_with_its_first_host(
    tmp_path: Path, key: Key, chosen: bool, born: str, host: str
) -> None:
    home = Home("h", {"XDG_STATE_HOME": str(tmp_path)})
    if born == "embedded":
        (home.planes / "team" / "old").mkdir(parents=True)
    genuine = Named("genuine", *([OLD] if born == "genuine" else []))
    embedded: Any = Named("embedded")
    planes = HostedPlanes(home, embedded, genuine, "v1.36.3" if chosen else "")
    with pytest.raises(LookupError, match=host):
        await planes.sleep(key)


@pytest.mark.parametrize(
    "said, before, wanted",
    [
        pytest.param("", None, "", id="never said"),
        pytest.param("", "installed", "installed", id="as last time"),
        pytest.param("no", "installed", "no", id="no more"),
        pytest.param("/k8s", "installed", "/k8s", id="another folder"),
    ],
)
def test_the_choice_is_remembered(said: str, before: str | None, wanted: str) -> None:
    last = None if before is None else Wish(name="n", genuine=before)
    assert settled(Wish(name="n", genuine=said), last).genuine == wanted


CLUSTERS = "clusters: [{region: a, url: 'https://x:8006', token_id: 'a@b!c', token_secret: s}]\n"


@pytest.mark.parametrize(
    "text, wanted",
    [
        pytest.param("", "", id="not said"),
        pytest.param("genuine_planes: true\n", "installed", id="true"),
        pytest.param("genuine_planes: false\n", "no", id="false"),
        pytest.param("genuine_planes: k8s\n", "k8s", id="a folder beside the file"),
    ],
)
def test_the_configuration_may_say_it(tmp_path: Path, text: str, wanted: str) -> None:
    (tmp_path / "k8s").mkdir()
    file = tmp_path / "proxmox.yaml"
    file.write_text(CLUSTERS + text)
    assert config.load(file)
    told = str(tmp_path / "k8s") if wanted == "k8s" else wanted
    assert config.genuine_planes(file) == told
    assert settled(Wish(name="n", config=str(file)), None).genuine == told
    flag = settled(Wish(name="n", config=str(file), genuine="no"), None)
    assert flag.genuine == "no"  # the command's word wins


@pytest.mark.parametrize("value", ["3", "[a]", "nowhere"])
def test_a_wrong_word_in_the_configuration(tmp_path: Path, value: str) -> None:
    file = tmp_path / "proxmox.yaml"
    file.write_text(f"{CLUSTERS}genuine_planes: {value}\n")
    with pytest.raises(InvalidConfig, match="true, false or a folder"):
        check(Wish(name="n", config=str(file)))


def test_a_folder_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(Missing, match="no folder /nowhere"):
        check(Wish(name="n", genuine="/nowhere"))


def test_the_option_may_come_without_a_value() -> None:
    given = ["--genuine-planes", "--wait", "3", "--genuine-planes=/k"]
    assert filled(given) == ["--genuine-planes=installed", "--wait", "3", "--genuine-planes=/k"]


def test_the_lab_gets_a_template_of_the_installed_version() -> None:
    regions = world.load_world(LAB, 0.0)
    for region in regions.values():
        names = set(region.guests)
        templates.add_template(region, "v1.36.3")
        (made,) = set(region.guests) - names
        guest = region.guests[made]
        assert templates.version_of(guest) == "v1.36.3"
        assert "v1.36.3" in str(guest.conf["name"])
        storage, _, name = str(guest.conf["scsi0"]).split(",")[0].partition(":")
        assert str(made) in name
        assert name in region.storages[storage].shelf(guest.node)
        assert made in region.reports  # in the lists at once
        templates.add_template(region, "v1.36.3")
        assert len(region.guests) == len(names) + 1
        templates.add_template(region, "v1.34.1")  # the world has it
        assert len(region.guests) == len(names) + 1
