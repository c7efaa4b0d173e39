"""Requests to genuine kubelets: which address, what usage, how ports are forwarded."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType

from moxwell.embedded.apiserver.kubelet import node_usage
from moxwell.embedded.apiserver.kubelet.genuine_kubelets import ForwardedPort, node_url
from moxwell.embedded.apiserver.status_errors import StatusError


def node(*addresses: tuple[str, str], port: int = 0) -> dict[str, Any]:
    rows = [{"type": kind, "address": address} for kind, address in addresses]
    status: dict[str, Any] = {"addresses": rows}
    if port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    return {"metadata": {"name": "n"}, "status": status}


@pytest.mark.parametrize(
    "found, url",
    [
        (node(("InternalIP", "10.0.0.1")), "https://10.0.0.1:10250"),
        (node(("InternalIP", "10.0.0.1"), port=9), "https://10.0.0.1:9"),
        (node(("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1")), "https://10.0.0.1:10250"),
        (node(("ExternalIP", "192.0.2.1")), "https://192.0.2.1:10250"),
        (node(("InternalIP", "fd00::1")), "https://[fd00::1]:10250"),
    ],
)
def test_a_kubelet_is_reached_at_the_address_of_its_node(found: dict[str, Any], url: str) -> None:
    assert node_url(found) == url


@pytest.mark.parametrize(
    "found, why",
    [
        (node(), "no address"),
        (node(("Hostname", "n.example")), "no address"),
        (node(("InternalIP", "kubernetes.default")), "no address"),
        (node(("InternalIP", "127.0.0.1")), "not served"),
        (node(("InternalIP", "169.254.169.254")), "not served"),
        (node(("InternalIP", "::1")), "not served"),
        (node(("InternalIP", "::ffff:127.0.0.1")), "not served"),
        (node(("InternalIP", "::ffff:a9fe:a9fe")), "not served"),
        (node(("InternalIP", "0.0.0.0")), "not served"),
    ],
)
def test_addresses_of_this_machine_are_refused(found: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError, match=why):
        node_url(found)


def test_the_summary_of_a_kubelet_is_read() -> None:
    usage = {"cpu": {"usageNanoCores": 7}, "memory": {"workingSetBytes": 4096}}
    pod = {"podRef": {"name": "p", "namespace": "d"}, "containers": [{"name": "c", **usage}]}
    other = {"podRef": {"name": "q", "namespace": "d"}}
    found = node_usage.read(json.dumps({"node": usage, "pods": [pod, other]}).encode())
    quantities = {"cpu": "7n", "memory": "4Ki"}
    containers = [{"name": "c", "usage": quantities}]
    assert found == {
        "usage": quantities,
        "pods": [{"namespace": "d", "name": "p", "containers": containers}],
    }
    with pytest.raises(msgspec.MsgspecError):
        node_usage.read(b'{"node": "busy"}')


class Socket:
    """Messages of a kubelet."""

    def __init__(self, *messages: bytes) -> None:
        self._messages, self.sent = messages, list[bytes]()

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        for data in self._messages:
            yield WSMessage(WSMsgType.BINARY, data, "")


async def test_the_channels_of_a_forwarded_port_are_removed() -> None:
    socket = Socket(b"\0\x90\x1f", b"\1\x90\x1f", b"\0one", b"", b"\0two")
    port = ForwardedPort(socket)  # type: ignore[arg-type]
    await port.send_bytes(b"asked")
    assert socket.sent == [b"\0asked"]
    assert [message.data async for message in port] == [b"one", b"two"]


async def test_an_error_of_the_kubelet_is_said() -> None:
    socket = Socket(b"\0\x90\x1f", b"\1\x90\x1f", b"\1connection refused")
    with pytest.raises(StatusError, match="connection refused"):
        _ = [m async for m in ForwardedPort(socket)]  # type: ignore[arg-type]
