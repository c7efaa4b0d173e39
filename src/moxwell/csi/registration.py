"""
Registers the node plugin with the kubelet, as node-driver-registrar does.

The kubelet watches a directory for sockets, asks each for the driver's name and the path of its CSI
socket, and reports whether it accepted the driver. It asks again after its own restart.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from moxwell.csi.server import CallHandlers, serving
from moxwell.csi.wire import pluginregistration_pb2 as wire

TYPE, VERSIONS = "CSIPlugin", ("1.0.0",)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletRegistration:
    """Where the kubelet finds the plugin; disabled if ``endpoint`` is empty."""

    endpoint: str = ""  # path of the CSI socket as the kubelet sees it
    directory: Path = Path("/registration")  # the kubelet's plugins_registry


NOT_REGISTERED = KubeletRegistration()


class RegistrationService:
    """pluginregistration.Registration for one driver."""

    def __init__(self, driver: str, endpoint: str) -> None:
        self._driver, self._endpoint = driver, endpoint

    async def get_info(self, _: wire.InfoRequest) -> wire.PluginInfo:
        return wire.PluginInfo(
            type=TYPE, name=self._driver, endpoint=self._endpoint, supported_versions=VERSIONS
        )

    async def notify_registration_status(
        self, status: wire.RegistrationStatus
    ) -> wire.RegistrationStatusResponse:
        """Log the result; after an error the kubelet tries again by itself."""
        if status.plugin_registered:
            log.info("registered with the kubelet", driver=self._driver)
        else:
            log.error("the kubelet refused the driver", driver=self._driver, error=status.error)
        return wire.RegistrationStatusResponse()


@asynccontextmanager
async def registered(
    registration: KubeletRegistration, driver: str, calls: CallHandlers
) -> AsyncIterator[None]:
    """Offer the plugin to the kubelet while the block runs; the CSI socket must be served."""
    if not registration.endpoint:
        yield
        return
    service = RegistrationService(driver, registration.endpoint)
    handlers = (calls.handlers("Registration", service, wire.DESCRIPTOR),)
    async with serving(f"unix://{registration.directory}/{driver}-reg.sock", handlers):
        yield
