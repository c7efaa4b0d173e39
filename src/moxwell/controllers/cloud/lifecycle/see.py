"""Looks up the guest of a node that is not Ready."""

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.guest_lookup import GuestFound, GuestLookup
from moxwell.controllers.cloud.lifecycle.plan import ObservedNodeGuest, has_shutdown_taint


async def see_guest(node: Node, lookup: GuestLookup) -> ObservedNodeGuest:
    """The guest; before a node is tainted, the host of its guest confirms that it is stopped."""
    if node.status.is_true("Ready"):
        return ObservedNodeGuest()
    result = await lookup.find(node)
    if isinstance(result, GuestFound):
        lookup.expect_change(result.region, node.status.changed_at("Ready"))
    stopped = isinstance(result, GuestFound) and result.guest.status == "stopped"
    if isinstance(result, GuestFound) and stopped and not has_shutdown_taint(node):
        result = await lookup.confirm(node, result)
    return ObservedNodeGuest(result)
