"""
The Identity service: who we are, what we can do, whether we are ready.

The surprise: a controller is ready only while Proxmox answers in at least one region; a probe that
always says yes hides the one thing a person wants to know.
"""

from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BoolValue

import moxwell
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.pve.regions import Regions

_SERVICE, _GROWS = csi.PluginCapability.Service, csi.PluginCapability.VolumeExpansion


class Identity:
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
    """Does at least one region answer?"""
    return any(region.inventory.health.reachable for region in regions.values())
