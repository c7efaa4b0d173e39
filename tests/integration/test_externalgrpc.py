"""
The provider for Cluster Autoscaler, called by gRPC with mutual TLS and through whole machines.

Cluster Autoscaler itself takes no part: its Go module is not in the registry of the tests. The
client is grpcio's, with the messages of the published protocol.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import message_factory

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.clock import SystemClock
from moxwell.externalgrpc.node_groups import AUTOSCALER
from moxwell.externalgrpc.server import ServerFiles, serving
from moxwell.externalgrpc.service import CloudProviderService
from moxwell.externalgrpc.wire import core_v1_pb2
from moxwell.externalgrpc.wire import externalgrpc_pb2 as wire
from moxwell.kube.client import Kube
from moxwell.pki import certificates
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.embedded_environment import embedded_environment
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_manifests import DEPLOYMENT
from moxwell.testing.machine_stories import begin, end

SERVICE = wire.DESCRIPTOR.services_by_name["CloudProvider"]
LIMITS = {f"{AUTOSCALER}min-size": "1", f"{AUTOSCALER}max-size": "4"}


class Client:
    """A gRPC client of the service, with the names of its calls."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def call(self, name: str, **fields: Any) -> Any:
        method = SERVICE.methods_by_name[name]
        request, answer = (
            message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type)
        )
        send = self._channel.unary_unary(
            f"/{SERVICE.full_name}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await send(request(**fields), timeout=30)


def write_files(folder: Path) -> tuple[ServerFiles, dict[str, Any]]:
    """Files of a server, and the arguments of a client with a certificate of the same authority."""
    now = SystemClock().now()
    ca = certificates.create_ca("ca", now)
    made = {
        name: certificates.issue(
            certificates.CertificateConfig(
                common_name=name, alt_names=("localhost",) if name == "server" else ()
            ),
            ca,
            now,
        )
        for name in ("server", "client")
    }
    files = ServerFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    files.certificate.write_bytes(made["server"].certificate)
    files.key.write_bytes(made["server"].key)
    files.client_ca.write_bytes(ca.certificate)
    client = made["client"]
    return files, {
        "root_certificates": ca.certificate,
        "private_key": client.key,
        "certificate_chain": client.certificate,
    }


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Kube, int, dict[str, Any]]]:
    store = open_store(SystemClock())
    await store.start()
    kube = Kube(store)
    files, client = write_files(folder)
    service = CloudProviderService(kube, "default", "c")
    try:
        async with serving("localhost:0", files, service) as port:
            yield kube, port, client
    finally:
        await store.stop()


async def add_group(kube: Kube, replicas: int) -> None:
    tree = yaml.safe_load(DEPLOYMENT % {"name": "w", "template": "w", "replicas": replicas})
    capacity = "capacity.cluster-autoscaler.kubernetes.io/"
    notes = {f"{capacity}cpu": "2", f"{capacity}memory": "4Gi"}
    tree["metadata"]["annotations"] = LIMITS | notes
    await kube.create(tree, MachineDeployment.resource)


def test_a_client_with_a_certificate_scales_a_group(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path) as (kube, port, tls):
            await add_group(kube, 1)
            async with grpc.aio.secure_channel(
                f"localhost:{port}", grpc.ssl_channel_credentials(**tls)
            ) as channel:
                client = Client(channel)
                await client.call("Refresh")
                (group,) = (await client.call("NodeGroups")).nodeGroups
                assert (group.id, group.minSize, group.maxSize) == ("default/w", 1, 4)
                await client.call("NodeGroupIncreaseSize", id=group.id, delta=2)
                size = await client.call("NodeGroupTargetSize", id=group.id)
                assert size.targetSize == 3
                assert (await kube.get(MachineDeployment, "w", "default")).spec.replicas == 3
                await client.call("NodeGroupDecreaseTargetSize", id=group.id, delta=-1)
                info = await client.call("NodeGroupTemplateNodeInfo", id=group.id)
                node: Any = core_v1_pb2.Node()
                node.ParseFromString(info.nodeBytes)
                assert node.status.capacity["cpu"].string == "2"
                options = await client.call(
                    "NodeGroupGetOptions", id=group.id,
                    defaults={"scaleDownUtilizationThreshold": 0.4},
                )  # fmt: skip
                assert options.nodeGroupAutoscalingOptions.scaleDownUtilizationThreshold == 0.4
                stranger = await client.call("NodeGroupForNode", node={"name": "control-plane"})
                assert stranger.nodeGroup.id == ""
                assert (await client.call("GPULabel")).label == ""
                await check_refusals(client)
                await client.call("Cleanup")

    asyncio.run(story())


async def check_refusals(client: Client) -> None:
    more = "NodeGroupIncreaseSize"
    for name, fields, code, text in (
        (more, {"id": "default/w", "delta": 9}, "FAILED_PRECONDITION", "maximum"),
        ("NodeGroupTargetSize", {"id": "default/x"}, "NOT_FOUND", "no node group"),
        (more, {"id": "default/w", "delta": -1}, "INVALID_ARGUMENT", "positive"),
        ("PricingPodPrice", {"pod_bytes": b"\xff"}, "INVALID_ARGUMENT", "malformed"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call(name, **fields)
        assert caught.value.code().name == code
        assert text in str(caught.value.details())


def test_a_client_without_a_certificate_of_the_authority_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        other = tmp_path / "other"
        other.mkdir()
        _, stranger = write_files(other)
        async with served(tmp_path) as (_, port, tls):
            only_root = {"root_certificates": tls["root_certificates"]}
            for given in (only_root, stranger | only_root):
                async with grpc.aio.secure_channel(
                    f"localhost:{port}", grpc.ssl_channel_credentials(**given)
                ) as channel:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await Client(channel).call("NodeGroups")
                    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(story())


def test_machines_come_and_the_named_one_goes() -> None:
    """Through Cluster API and simulated guests; a repeated deletion changes nothing."""

    async def story() -> None:
        async with embedded_environment() as env:
            await begin(env, replicas=1)
            change = {"metadata": {"annotations": LIMITS}}
            await env.kube.merge(MachineDeployment, "w", change, "default")
            service = CloudProviderService(env.kube, "default", "c")
            await env.with_nodes(1)
            await service.node_group_increase_size(
                wire.NodeGroupIncreaseSizeRequest(id="default/w", delta=2)
            )
            machines = await env.with_nodes(3)
            await service.refresh(wire.RefreshRequest())
            nodes = await service.node_group_nodes(wire.NodeGroupNodesRequest(id="default/w"))
            assert [i.status.instanceState for i in nodes.instances] == [1, 1, 1]
            leaves = machines[1]
            node = wire.ExternalGrpcNode(providerID=leaves.spec.provider_id, name=leaves.name)
            found = await service.node_group_for_node(wire.NodeGroupForNodeRequest(node=node))
            assert found.nodeGroup.id == "default/w"
            asked = wire.NodeGroupDeleteNodesRequest(id="default/w", nodes=[node])
            await service.node_group_delete_nodes(asked)
            await service.node_group_delete_nodes(asked)  # its answer was lost
            left = {m.uid for m in await env.with_nodes(2)}
            assert left == {m.uid for m in machines if m.uid != leaves.uid}
            assert (await env.kube.get(MachineDeployment, "w", "default")).spec.replicas == 2
            assert len((await env.kube.list(Machine, "default")).items) == 2
            await end(env)

    run_virtual(story())
