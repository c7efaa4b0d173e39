"""The next move of a disruption command, and its record, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.disruption.command_record import (
    CommandRecord,
    command_id,
    record_of,
    records_of,
)
from moxwell.controllers.karpenter.disruption.execution import tainted, untainted
from moxwell.controllers.karpenter.disruption.plan import (
    AwaitReplacements,
    CommandState,
    DeleteCandidates,
    UndoCommand,
    plan_command,
)
from moxwell.controllers.karpenter.names import COMMAND
from moxwell.testing.node_claims import claim_object

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DELETED = "2026-01-01T23:59:00Z"


def claim(
    name: str, *, initialized: bool = False, deleted: bool = False, command: str = ""
) -> NodeClaim:
    meta: dict[str, Any] = {"uid": f"u-{name}", "annotations": {COMMAND: command}}
    if deleted:
        meta["deletionTimestamp"] = DELETED
    condition = {"type": "Initialized", "status": "True", "reason": "", "message": ""}
    status = {"providerID": f"p-{name}", "conditions": [condition] if initialized else []}
    tree = claim_object(name, metadata=meta) | {"status": status}
    return msgspec.convert(tree, NodeClaim)


def node(name: str, *, disrupted: bool = False) -> Node:
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    other = {"key": "team", "effect": "NoSchedule", "value": "a"}
    spec = {"providerID": f"p-{name}", "taints": [other, taint] if disrupted else [other]}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Node)


def record(*replacements: str, age: float = 0) -> CommandRecord:
    return CommandRecord(
        id="k",
        reason="Underutilized",
        method="multi",
        created=NOW - timedelta(seconds=age),
        candidates=("c-1", "c-2"),
        replacements=replacements,
    )


MOVES: dict[str, tuple[dict[str, NodeClaim | None], float, type]] = {
    "nothing to replace": ({}, 0, DeleteCandidates),
    "never created": ({"r": None}, 0, UndoCommand),
    "one of two was never created": (
        {"r": claim("r", initialized=True), "s": None},
        0,
        UndoCommand,
    ),
    "launch failed": ({"r": claim("r", deleted=True)}, 0, UndoCommand),
    "starting": ({"r": claim("r")}, 599, AwaitReplacements),
    "too late": ({"r": claim("r")}, 601, UndoCommand),
    "ready": ({"r": claim("r", initialized=True)}, 0, DeleteCandidates),
    "ready at last": ({"r": claim("r", initialized=True)}, 9999, DeleteCandidates),
}


@pytest.mark.parametrize(("replacements", "age", "wanted"), MOVES.values(), ids=MOVES)
def test_the_next_move_of_a_command(
    replacements: dict[str, NodeClaim | None], age: float, wanted: type
) -> None:
    candidates = (claim("c-1"), claim("c-2", deleted=True))
    nodes = (node("c-1"), node("c-2", disrupted=True))
    state = CommandState(record(*replacements, age=age), candidates, nodes, replacements, NOW)
    move = plan_command(state)
    assert type(move) is wanted
    match move:
        case DeleteCandidates():
            assert [c.metadata.name for c in move.claims] == ["c-1"]
        case AwaitReplacements():
            assert [n.metadata.name for n in move.nodes] == ["c-1"]
        case UndoCommand():
            assert [c.metadata.name for c in move.claims] == ["c-1"]
            assert [n.metadata.name for n in move.nodes] == ["c-1"]
            initialized = [c for c in replacements.values() if c and c.status.conditions]
            assert not any(c in initialized for c in move.replacements)


def test_a_record_survives_its_annotation() -> None:
    given = record("r")
    assert record_of(claim("c-1", command=given.encoded())) == given
    assert records_of([claim("c-1", command=given.encoded(), deleted=True)]) == ()
    both = [claim("c-1", command=given.encoded()), claim("c-2", command=given.encoded())]
    assert records_of(both) == (given,)


@pytest.mark.parametrize("text", ["", "{}", "null", "[1]", '{"id": 1}', "x" * 100])
def test_an_annotation_that_somebody_else_wrote_is_no_command(text: str) -> None:
    assert record_of(claim("c-1", command=text)) is None


def test_the_id_depends_on_the_claims_and_the_time_only() -> None:
    a, b = claim("c-1"), claim("c-2")
    assert command_id([a, b], NOW) == command_id([b, a], NOW)
    assert command_id([a], NOW) != command_id([b], NOW)
    assert command_id([a], NOW) != command_id([a], NOW + timedelta(seconds=1))


def test_a_taint_is_added_and_removed_beside_others() -> None:
    added = tainted(node("c-1")).change["spec"]["taints"]
    assert [t["key"] for t in added] == ["team", "karpenter.sh/disrupted"]
    removed = untainted(node("c-1", disrupted=True))
    assert removed is not None
    assert [t["key"] for t in removed.change["spec"]["taints"]] == ["team"]
    assert untainted(node("c-1")) is None
