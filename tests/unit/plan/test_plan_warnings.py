"""What a plan warns of."""

import pytest

from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.diff import NodeGroupChange
from moxwell.plan.report import MachineChange
from moxwell.plan.warnings import network_warnings, spread_warnings


def group(rolls: bool = True, deleted: int = 3) -> NodeGroupChange:
    return NodeGroupChange("c1-a", 3, 3, rolls, 3, deleted)


def rows(before: str, after: str) -> list[MachineChange]:
    names = {"n": "north", "s": "south"}
    gone = [MachineChange(action="delete", group="c1-a", region=names[r]) for r in before]
    return gone + [MachineChange(action="create", group="c1-a", region=names[r]) for r in after]


@pytest.mark.parametrize(
    ("before", "after", "warned"),
    [
        ("nns", "nss", False),
        ("nns", "nnn", True),
        ("ns", "nn", True),
        ("nnn", "nnn", False),
        ("nnn", "nns", False),
        ("nnss", "nnss", False),
        ("nnss", "nnns", True),
        ("", "nnn", False),
    ],
)
def test_a_rollout_that_spreads_worse_is_reported(before: str, after: str, warned: bool) -> None:
    assert bool(list(spread_warnings([group()], rows(before, after)))) == warned
    assert not list(spread_warnings([group(rolls=False)], rows(before, after)))


def test_a_network_change_names_what_changes_and_how_many_nodes() -> None:
    none, wall = Defaults(regions=()), Defaults(regions=(), firewall_group="mox-red", bridge="v1")
    (text,) = network_warnings("c1", [group()], none, wall)
    assert "firewall and bridge replaces 3 nodes (c1-a)" in text
    assert not list(network_warnings("c1", [group(rolls=False)], none, wall))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(1, 1, "c1-a: 1 node;"), (0, 1, "c1-a: 0 -> 1 node;"), (1, 0, "c1-a: 1 -> 0 nodes;")],
)
def test_one_node_is_no_nodes(before: int, after: int, said: str) -> None:
    assert str(NodeGroupChange("c1-a", before, after, False, 0, 0)).startswith(said)
