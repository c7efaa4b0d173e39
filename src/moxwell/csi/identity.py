"""
The CSI Identity service.

A controller reports ready only while at least one Proxmox region is reachable.
"""

from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BoolValue

import moxwell
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.pve.regions import Regions

_SERVICE, _GROWS = csi.PluginCapability.Service, csi.PluginCapability.VolumeExpansion


class IdentityService:
    """csi.v1.Identity."""

    def __init__(self, name: str, ready: Callable[[], bool]) -> None:
        self._name, self._ready = name, ready

    async def get_plugin_info(self, _: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:
        return csi.GetPluginInfoResponse(name=self._name, vendor_version=moxwell.__version__)

    async def get_plugin_capabilities(
        self, _: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        services = (_SERVICE.CONTROLLER_SERVICE, _SERVICE.VOLUME_ACCESSIBILITY_CONSTRAINTS)
        rows = [csi.PluginCapability(service=_SERVICE(type=t)) for t in services]
        rows.append(csi.PluginCapability(volume_expansion=_GROWS(type=_GROWS.ONLINE)))
        return csi.GetPluginCapabilitiesResponse(capabilities=rows)

    async def probe(self, _: csi.ProbeRequest) -> csi.ProbeResponse:
        return csi.ProbeResponse(ready=BoolValue(value=self._ready()))


def any_reachable(regions: Regions) -> bool:
    """Return whether at least one region is reachable."""
    return any(region.inventory.health.reachable for region in regions.values())
