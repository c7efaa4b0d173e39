"""The topology segments of nodes, by the keys that a CSI driver has registered."""

from collections.abc import Mapping
from typing import Any

from moxwell.embedded.controllermanager.storage.labels import driver_entry
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

Json = Mapping[str, Any]


def topology_segment(node: Json, csi_node: Json | None, driver: str) -> Mapping[str, str]:
    """The node's values of the driver's topology keys; empty if the driver is not registered."""
    keys = (driver_entry(csi_node, driver) or {}).get("topologyKeys") or ()
    labels = node["metadata"].get("labels") or {}
    return {key: labels[key] for key in keys if key in labels}


def segments(
    nodes: Cache[Any], csi_nodes: Cache[Any], driver: str, selected: str = ""
) -> list[Mapping[str, str]]:
    """The topology segments of the nodes that have the driver, or of one node."""
    found: list[Mapping[str, str]] = []
    for node in nodes.list():
        name = node["metadata"]["name"]
        if selected and name != selected:
            continue
        segment = topology_segment(node, csi_nodes.find(Key("", name)), driver)
        if segment and segment not in found:
            found.append(segment)
    return found
