"""What operator mode reads at start and while it runs: with regions, and without any."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from moxwell.app import operator
from moxwell.app.operator import OperatorOptions
from moxwell.cli.operator import OperatorFlags, autoscaler_flags
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.errors import Invalid
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport

ONE = """clusters:
- {url: "https://h:8006", region: r, token_id: "u@pve!t", token_secret: s}
"""
MACHINES, CLOUD = ("infra", "tenancy"), ("infra", "cloud")
SCALING = ("infra", "karpenter")


def options(
    path: Path, text: str | None, controllers: tuple[str, ...] = MACHINES
) -> OperatorOptions:
    if text is not None:
        path.write_text(text)
    return OperatorOptions(
        config=path, settings=ManagerSettings(identity="me"), controllers=controllers
    )


@pytest.mark.parametrize(
    "text, regions",
    [
        pytest.param(ONE, 1, id="one region"),
        pytest.param("clusters: []\n", 0, id="an empty list"),
        pytest.param("clusters:\n", 0, id="a list without entries"),
        pytest.param("features: {}\n", 0, id="no list"),
        pytest.param("# nothing\n", 0, id="a comment"),
        pytest.param("", 0, id="an empty file"),
    ],
)
def test_machines_need_no_configured_region(tmp_path: Path, text: str, regions: int) -> None:
    asked = options(tmp_path / "config.yaml", text)
    operator.check(asked)
    assert len(operator.load(asked)) == regions


@pytest.mark.parametrize(
    "text, controllers, said",
    [
        pytest.param("clusters: []", CLOUD, "at least one region", id="the cloud needs one"),
        pytest.param("", CLOUD, "clusters", id="the cloud, and an empty file"),
        pytest.param("clusters: 3", MACHINES, "must be a list", id="no list"),
        pytest.param("clusters: {}", MACHINES, "must be a list", id="a mapping"),
        pytest.param("clustres: []", MACHINES, "clustres", id="a slip of the pen"),
        pytest.param("- x", MACHINES, "mapping", id="no mapping"),
        pytest.param(None, MACHINES, "cannot read", id="a file that was named and is missing"),
        pytest.param(ONE, SCALING, "--scaled-cluster", id="nobody said which cluster is scaled"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, text: str | None, controllers: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        operator.check(options(tmp_path / "config.yaml", text, controllers))


def test_the_file_that_nobody_named_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    monkeypatch.setattr(operator, "CONFIG", path)
    operator.check(options(path, None))
    assert operator.load(options(path, None)) == ()
    with pytest.raises(Invalid, match="cannot read"):
        operator.check(options(path, None, CLOUD))


def test_regions_come_with_the_file_and_stay_when_it_is_emptied(tmp_path: Path) -> None:
    async def main() -> None:
        clock, path = LoopClock(), tmp_path / "config.yaml"
        asked = options(path, "clusters: []\n")
        regions = Regions([], clock, connect=lambda c: ScriptedTransport(lambda *_: []))
        book = RegionRegistry(regions, [])
        reading = asyncio.create_task(operator.reload(asked, book, clock))
        await asyncio.sleep(1)
        seen = []
        for text in (ONE, "", "clusters: 3", "clusters: []\n"):
            path.write_text(text)
            await asyncio.sleep(operator.RELOAD_SECONDS * 2)
            seen.append(tuple(book.shared))
        assert seen == [("r",), ("r",), ("r",), ()]
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    run_virtual(main())


@pytest.mark.parametrize("cluster", ["", "c", "/c", "default/", "default/c/d"])
def test_the_scaled_cluster_is_a_namespace_and_a_name(tmp_path: Path, cluster: str) -> None:
    asked = replace(options(tmp_path / "config.yaml", ONE, SCALING), scaled_cluster=cluster)
    with pytest.raises(Invalid, match="NAMESPACE/NAME"):
        operator.check(asked)


def test_the_autoscaler_needs_the_pods_of_all_namespaces(tmp_path: Path) -> None:
    asked = replace(options(tmp_path / "config.yaml", ONE, SCALING), scaled_cluster="default/c")
    narrow = replace(asked, settings=replace(asked.settings, namespaces=("default",)))
    with pytest.raises(Invalid, match="remove --namespace"):
        operator.check(narrow)


def test_the_autoscaler_runs_beside_the_machines(tmp_path: Path) -> None:
    asked = replace(options(tmp_path / "config.yaml", ONE, SCALING), scaled_cluster="default/c")
    operator.check(asked)

    async def story() -> None:
        clock = LoopClock()
        runtime = assemble(open_store(clock), clock, asked.settings)
        configs = operator.load(asked)
        regions = Regions(configs, clock, connect=lambda c: ScriptedTransport(lambda *_: []))
        operator.compose(runtime, clock, regions, RegionRegistry(regions, configs), asked)
        for name in ("infra.machine", "karpenter.nodepool", "karpenter.claim"):
            assert runtime.manager.worker(name) is not None

    run_virtual(story())


def test_flags_of_the_autoscaler_replace_the_file_and_wrong_ones_stop_the_start(
    tmp_path: Path,
) -> None:
    text = ONE + "features: {autoscaler: {mode: exact, batchMaxDuration: 20s}}\n"
    flags = OperatorFlags(
        controllers="infra,karpenter", scaled_cluster="a/b", batch_max_duration="5s"
    )
    given = replace(
        options(tmp_path / "config.yaml", text, SCALING),
        scaled_cluster="a/b",
        autoscaler=autoscaler_flags(flags),
    )
    operator.check(given)
    found = operator.autoscaler_options_of(given, Key("a", "b"))
    assert (found.mode, found.batch_max_seconds) == ("exact", 5.0)
    wrong = replace(given, autoscaler={"featureGates": "Nope=true"})
    with pytest.raises(Invalid, match=r"the flags\.featureGates: unknown Nope"):
        operator.check(wrong)
