"""Whether a pod is deleted because its node is gone. Pure."""

from typing import Any

from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Delete, Writes

Json = dict[str, Any]


def next_move(pod: Json, node_exists: bool) -> WriteMove:
    """Delete a pod that is bound to a node that does not exist; no kubelet would end it."""
    meta = pod["metadata"]
    if not pod["spec"].get("nodeName") or node_exists:
        return Done()
    return Writes(
        (Delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_seconds=0),)
    )
