"""What happens to nodes that are not Ready: a table."""

from typing import Any

import pytest

from moxwell.api.core.nodes import Node, NodeSpec, Taint
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.cloud.guest_lookup import (
    GuestFound,
    GuestGone,
    GuestUnknown,
    LookupResult,
    NotAGuest,
)
from moxwell.controllers.cloud.lifecycle.plan import SHUTDOWN, ObservedNodeGuest, plan_lifecycle
from moxwell.pve.model import ObservedGuest
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Writes


def node(*taints: str) -> Node:
    rows = tuple(Taint(key=key, effect="NoSchedule") for key in taints)
    return Node(metadata=ObjectMeta(name="n", uid="u"), spec=NodeSpec(taints=rows))


def guest(status: str) -> Any:
    found = ObservedGuest(vmid=100, host="h", name="n", status=status)
    return GuestFound(None, found, None)  # type: ignore[arg-type]


TABLE: dict[str, tuple[Node, LookupResult | None, Any]] = {
    "Ready": (node(), None, Done),
    "Ready again": (node(SHUTDOWN), None, []),
    "its guest is gone": (node(), GuestGone("guest 100"), Delete),
    "its guest is unknown": (node(), GuestUnknown("no answer"), Wait),
    "not a guest": (node(), NotAGuest(), Done),
    "its guest runs": (node(), guest("running"), Done),
    "its guest is stopped": (node("other"), guest("stopped"), ["other", SHUTDOWN]),
    "stopped and tainted": (node(SHUTDOWN), guest("stopped"), Done),
}


@pytest.mark.parametrize(("subject", "result", "expected"), TABLE.values(), ids=TABLE)
def test_plan(subject: Node, result: LookupResult | None, expected: Any) -> None:
    move = plan_lifecycle(subject, ObservedNodeGuest(result))
    if not isinstance(move, Writes):
        assert isinstance(move, expected)
        return
    (write,) = move.writes
    if isinstance(write, Merge):
        assert [t["key"] for t in write.change["spec"]["taints"] or ()] == expected
    else:
        assert isinstance(write, expected)
        assert write.uid == "u"
