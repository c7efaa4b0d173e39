"""Controller names and flags of the upstream cloud controller manager are accepted."""

import pytest

from moxwell.app import controller_selection
from moxwell.cli import go_flags
from moxwell.controllers.cloud.metrics import kind_of
from moxwell.errors import Invalid


@pytest.mark.parametrize(
    "names, groups, loops",
    [
        pytest.param("infra,tenancy", {"infra", "tenancy"}, (), id="no cloud"),
        pytest.param(
            "cloud", set(), ("cloud.node", "cloud.lifecycle", "cloud.service"), id="the whole cloud"
        ),
        pytest.param(
            "cloud-node,cloud-node-lifecycle",
            set(),
            ("cloud.node", "cloud.lifecycle"),
            id="as the chart has it",
        ),
        pytest.param(
            "cloud-node-controller,cloud-node-lifecycle-controller",
            set(),
            ("cloud.node", "cloud.lifecycle"),
            id="by their long names",
        ),
        pytest.param("cloud-node-lifecycle", set(), ("cloud.lifecycle",), id="beside Talos"),
        pytest.param(
            "*,-service,-route", set(), ("cloud.node", "cloud.lifecycle"), id="all but some"
        ),
    ],
)
def test_choose(names: str, groups: set[str], loops: tuple[str, ...]) -> None:
    chosen = controller_selection.choose(names.split(","))
    assert set(chosen.groups) == groups
    assert chosen.loops == loops


def test_an_unknown_controller_is_named() -> None:
    with pytest.raises(Invalid, match="cloud-mode"):
        controller_selection.choose(["cloud-mode"])


@pytest.mark.parametrize(
    "text, seconds",
    [
        pytest.param("5m0s", 300.0, id="as Go prints it"),
        pytest.param("1h30m", 5400.0, id="hours"),
        pytest.param("250ms", 0.25, id="parts of a second"),
        pytest.param("10", 10.0, id="a bare number"),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert go_flags.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5x", "m", "5m-1s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(Invalid):
        go_flags.duration(text)


@pytest.mark.parametrize(
    "given, read",
    [
        pytest.param("--leader-elect=false", "--no-leader-elect", id="a switch off"),
        pytest.param("--leader-elect=true", "--leader-elect", id="a switch on"),
        pytest.param("-v=4", "--verbosity=4", id="one dash"),
        pytest.param("--v=4", "--verbosity=4", id="two dashes"),
        pytest.param("--secure-port=10258", "--secure-port=10258", id="everything else"),
    ],
)
def test_flags_of_go(given: str, read: str) -> None:
    assert go_flags.normalize([given]) == [read]


@pytest.mark.parametrize(
    "path, kind",
    [
        pytest.param("/cluster/resources", "getVmInfo", id="the list"),
        pytest.param("/nodes/pve1/qemu/100/config", "getVMConfig", id="a configuration"),
        pytest.param("/version", "other", id="anything else"),
    ],
)
def test_kind_of(path: str, kind: str) -> None:
    assert kind_of(path) == kind
