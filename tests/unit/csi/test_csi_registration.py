"""The node plugin registers itself with the kubelet."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from moxwell.clock import SystemClock
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.registration import KubeletRegistration, registered
from moxwell.csi.server import CallHandlers
from moxwell.csi.wire import pluginregistration_pb2 as wire

DRIVER, SOCKET = "csi.moxwell.dev", "/var/lib/kubelet/plugins/csi.moxwell.dev/csi.sock"


def names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def calls() -> CallHandlers:
    return CallHandlers(SystemClock(), CsiMetrics(CollectorRegistry(), DRIVER))


async def ask(socket: Path, method: str, request: object, kind: Any) -> Any:
    """Call the plugin as the kubelet does."""
    async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
        call = channel.unary_unary(
            f"/pluginregistration.Registration/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await call(request)


async def test_the_kubelet_learns_the_socket_of_the_driver(tmp_path: Path) -> None:
    socket = tmp_path / f"{DRIVER}-reg.sock"
    async with registered(KubeletRegistration(SOCKET, tmp_path), DRIVER, calls()):
        info = await ask(socket, "GetInfo", wire.InfoRequest(), wire.PluginInfo)
    expected = wire.PluginInfo(
        type="CSIPlugin", name=DRIVER, endpoint=SOCKET, supported_versions=["1.0.0"]
    )
    assert info == expected
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("status", "level"),
    [
        (wire.RegistrationStatus(plugin_registered=True), "info"),
        (wire.RegistrationStatus(error="the driver has another version"), "error"),
    ],
    ids=["accepted", "refused"],
)
async def test_the_answer_of_the_kubelet_is_logged(
    status: wire.RegistrationStatus, level: str, tmp_path: Path
) -> None:
    socket = tmp_path / f"{DRIVER}-reg.sock"
    async with registered(KubeletRegistration(SOCKET, tmp_path), DRIVER, calls()):
        with capture_logs() as logs:
            kind = wire.RegistrationStatusResponse
            await ask(socket, "NotifyRegistrationStatus", status, kind)
    rows = [row for row in logs if row.get("driver") == DRIVER]
    assert [row["log_level"] for row in rows] == [level]
    assert rows[0].get("error", "") == status.error


async def test_without_a_path_another_program_registers(tmp_path: Path) -> None:
    async with registered(KubeletRegistration("", tmp_path), DRIVER, calls()):
        assert names_in(tmp_path) == []
