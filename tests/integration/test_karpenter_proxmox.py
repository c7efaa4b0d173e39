"""The autoscaler's provider over simulated Proxmox regions, with guests that join as nodes."""

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.infra import admission
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxUnmanagedTemplate
from moxwell.api.requests import Handler, Request, Response
from moxwell.controllers.infra.host_capabilities import KEEP_SECONDS
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure, NodeInstance
from moxwell.controllers.karpenter.proxmox.provider import ProxmoxProvider
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.client import Kube
from moxwell.kube.transport import ApiServerUnreachable
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.scheduling.well_known_labels import ARCH, INSTANCE_TYPE, REGION, ZONE
from moxwell.testing.karpenter_environment import (
    CLUSTER,
    JOIN_TEMPLATE,
    MANIFEST,
    KarpenterEnvironment,
    karpenter_environment,
    node_claim,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_provider import PROVIDER_CHECKS

SHARED = (  # asked once for all guests of a region
    "/cluster/resources",
    "/cluster/tasks",
    "/tasks",
    "/cluster/status",
    "/version",
    "/network",
)
TOKEN_LABEL = "karpenter.proxmox.sinextra.dev/bootstrap-token"


async def until_launched(env: KarpenterEnvironment, claim: NodeClaim) -> NodeInstance:
    """Launch a claim, as the autoscaler does, until its guest runs."""

    async def ready() -> NodeInstance | None:
        found = await env.provider.instance(claim)
        if found is None:
            await env.provider.launch(claim)
        return found if found and found.state is InstanceState.LAUNCHED else None

    instance: NodeInstance = await env.stage.until(f"{claim.name} is launched", ready)
    return instance


async def until_joined(env: KarpenterEnvironment, instance: NodeInstance) -> dict[str, Any]:
    async def joined() -> dict[str, Any] | None:
        nodes = (await env.kube.list(NODES)).items
        return next((n for n in nodes if n["spec"].get("providerID") == instance.provider_id), None)

    node: dict[str, Any] = await env.stage.until("the node has joined", joined)
    return node


async def until_gone(env: KarpenterEnvironment, *claims: NodeClaim) -> None:
    for claim in claims:
        await env.provider.terminate(claim.name, claim.uid)

    async def gone() -> bool:
        return (
            not (await env.kube.list(ProxmoxMachine)).items
            and not (await env.kube.list(Machine)).items
        )

    await env.stage.until("the machines are gone", gone)


async def node_class_ready(env: KarpenterEnvironment, status: str, reason: str) -> ProxmoxNodeClass:
    async def reported() -> ProxmoxNodeClass | None:
        found = await env.node_class()
        ready = next((c for c in found.status.conditions if c.type == "Ready"), None)
        return found if ready and (ready.status, ready.reason) == (status, reason) else None

    found: ProxmoxNodeClass = await env.stage.until(f"the class is {reason}", reported)
    return found


def own_requests(requests: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Requests that are not shared by all guests of a region."""
    return [r for r in requests if not r[1].partition("?")[0].endswith(SHARED)]


async def claim_to_node(env: KarpenterEnvironment) -> None:
    """A claim becomes a node with the same provider ID, and its end leaves nothing behind."""
    before = env.stage.contents()
    claim = await env.claim("first")
    instance = await until_launched(env, claim)
    node = await until_joined(env, instance)
    taints = {t["key"] for t in node["spec"]["taints"]}
    assert "karpenter.sh/unregistered" in taints
    assert node["metadata"]["labels"]["team"] == "a"
    assert instance.labels[INSTANCE_TYPE] == "c1.2VCPU-4GB"
    guest = (await env.stage.guests())[0]
    at = (guest.spec.region, guest.status.proxmox_node)
    assert at == (instance.labels[REGION], instance.labels[ZONE])
    assert await env.provider.drift(claim) == ""
    change = {"spec": {"tags": ["blue"]}}
    await env.kube.merge(ProxmoxNodeClass, "default", change)

    async def tagged() -> bool:
        found = env.program.regions.find(guest.spec.region or "")
        seen = found.inventory.find(guest.spec.virtual_machine_id or 0) if found else None
        return seen is not None and "blue" in seen.tags

    await env.stage.until("the guest has the new tag", tagged)
    assert await env.provider.drift(claim) == ""
    await env.kube.merge(ProxmoxNodeClass, "default", {"spec": {"bootDevice": {"size": "40G"}}})

    async def drifted() -> bool:
        return await env.provider.drift(claim) == "NodeClassDrift"

    await env.stage.until("the node drifts", drifted)
    await until_gone(env, claim)
    assert env.stage.contents() == before


async def requests_per_launch(env: KarpenterEnvironment) -> None:
    """A launch sends at most 10 requests until the guest runs, and 14 until its ISO is gone."""
    claim = await env.claim("counted")
    start = env.sent()
    instance = await until_launched(env, claim)
    running = own_requests(env.requests_since(start))
    assert len(running) <= 10, running
    await until_joined(env, instance)

    async def without_iso() -> bool:
        guests = await env.stage.guests()
        return all(g.status.next_move == "" for g in guests)

    await env.stage.until("the ISO is deleted", without_iso)
    whole = own_requests(env.requests_since(start))
    assert len(whole) <= 14, whole
    await until_gone(env, claim)


async def ten_at_once(env: KarpenterEnvironment) -> None:
    """Ten launches at once get ten VMIDs, and hosts are not overcommitted."""
    claims = [await env.claim(f"many-{n}", {"cpu": "7", "memory": "4Gi"}) for n in range(10)]
    await asyncio.gather(*(until_launched(env, claim) for claim in claims))
    guests = await env.stage.guests()
    assert len({(g.spec.region, g.spec.virtual_machine_id) for g in guests}) == 10
    used: dict[tuple[str, str], int] = {}
    for guest in guests:
        at = (guest.spec.region or "", guest.status.proxmox_node)
        used[at] = used.get(at, 0) + (guest.spec.num_cores or 0)
    assert max(used.values()) <= 32, used
    await until_gone(env, *claims)


class LostAnswers:
    """An API that executes writes, but loses the answer of the last of ``left``."""

    def __init__(self, inner: Handler, left: int) -> None:
        self._inner, self._left = inner, left

    async def handle(self, request: Request) -> Response:
        answer = await self._inner.handle(request)
        if request.method == "POST":
            self._left -= 1
            if self._left == 0:
                raise ApiServerUnreachable("the connection broke")
        return answer


def losing(env: KarpenterEnvironment, writes: int) -> ProxmoxProvider:
    """The provider with an API whose answer to a write is lost."""
    kube = Kube(LostAnswers(env.store, writes), manager="moxwell")
    return ProxmoxProvider(CLUSTER, replace(env.provider.parts, management=kube))


async def interrupted_launches(env: KarpenterEnvironment) -> None:
    """A launch that ends after any of its writes is continued, or leaves nothing behind."""
    before = env.stage.contents()
    for writes in (1, 2, 3):
        kept, ended = await env.claim(f"kept-{writes}"), await env.claim(f"ended-{writes}")
        for claim in (kept, ended):
            with pytest.raises(ApiServerUnreachable):
                await losing(env, writes).launch(claim)
        await env.provider.terminate(ended.name, ended.uid)
        await until_launched(env, kept)
        machines = [i.claim for i in await env.provider.instances()]
        assert machines.count(kept.name) == 1
    guests = await env.stage.guests()
    assert len([g for g in guests if not g.deleting]) == 3
    await until_gone(env, *[await env.kube.get(NodeClaim, f"kept-{n}") for n in (1, 2, 3)])
    assert not (await env.kube.list(KubeadmConfig)).items
    assert env.stage.contents() == before


def test_a_node_claim_becomes_a_node_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            for scene in (claim_to_node, requests_per_launch, ten_at_once, interrupted_launches):
                await scene(env)

    run_virtual(story())


def test_the_provider_passes_the_common_checks() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            given = await env.under_test()
            for check in PROVIDER_CHECKS:
                await check(given)

    run_virtual(story())


SECRETS = """
apiVersion: v1
kind: Secret
metadata: {name: templates, namespace: kube-system}
data: {user-data: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: values, namespace: kube-system}
stringData: {rack: r1}
"""
CDROM = MANIFEST.replace(
    "  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}",
    """  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}
  metadataOptions:
    type: cdrom
    templatesRef: {name: templates, namespace: kube-system}
    valuesRef: {name: values, namespace: kube-system}""",
)


async def apply_templates(env: KarpenterEnvironment, user_data: str) -> None:
    await env.stage.apply(SECRETS % base64.b64encode(user_data.encode()).decode())


async def templates_in_a_secret(env: KarpenterEnvironment) -> None:
    """A class whose Secret is missing or wrong launches nothing; then its node joins."""
    claim = await env.claim("templated")
    await node_class_ready(env, "False", "SecretNotFound")
    await env.provider.launch(claim)
    failed = await env.provider.instance(claim)
    assert failed is not None
    assert failed.failure is LaunchFailure.NODE_CLASS_NOT_READY
    await apply_templates(env, "a\n{{ nope }}")
    wrong = await node_class_ready(env, "False", "InvalidTemplate")
    messages = {c.type: c.message for c in wrong.status.conditions}
    assert "user-data: line 2, column" in messages["Ready"]
    assert not (await env.kube.list(Machine)).items
    await apply_templates(env, JOIN_TEMPLATE)
    await node_class_ready(env, "True", "Ready")
    await env.provider.launch(claim)
    instance = await until_launched(env, claim)
    tokens = (await env.kube.list(Secret, "kube-system", labels=TOKEN_LABEL)).items
    assert [t.read("usage-bootstrap-signing") for t in tokens] == ["true"]
    node = await until_joined(env, instance)
    assert node["metadata"]["labels"]["rack"] == "r1"
    await until_gone(env, claim)
    assert not (await env.kube.list(Secret, "kube-system", labels=TOKEN_LABEL)).items

    async def no_data() -> bool:
        left = (await env.kube.list(Secret, "default")).items
        return not [s for s in left if "moxwell.dev/nodeclaim-uid" in s.metadata.labels]

    await env.stage.until("the bootstrap data is deleted", no_data)


async def class_in_use_is_kept(env: KarpenterEnvironment) -> None:
    """A node class is deleted when no claim uses it."""
    template = await env.kube.get(ProxmoxUnmanagedTemplate, "ubuntu")
    assert template.status.zones == ("north/pve1/9000", "south/pve1/9000")
    await env.kube.delete(ProxmoxNodeClass, "default")
    await asyncio.sleep(60)
    assert (await env.node_class()).deleting
    await env.kube.delete(NodeClaim, "templated")

    async def gone() -> bool:
        return await env.kube.find(ProxmoxNodeClass, "default") is None

    await env.stage.until("the class is gone", gone)


def test_templates_of_a_secret_make_a_node() -> None:
    async def story() -> None:
        async with karpenter_environment(CDROM) as env:
            await templates_in_a_secret(env)
            await class_in_use_is_kept(env)

    run_virtual(story())


async def pool_of(env: KarpenterEnvironment, machine: ProxmoxMachine) -> str:
    """The resource pool that the guest of a machine is in, in Proxmox."""
    pools = env.environment.engine.runtimes[machine.spec.region or ""].region.pools
    return next((n for n, p in pools.items() if machine.spec.virtual_machine_id in p.vms), "")


def test_the_guests_of_a_class_move_to_its_resource_pool() -> None:
    async def story() -> None:
        async with karpenter_environment(trusted=True) as env:
            for transport in env.transports.values():
                writer = PveWriter(SwitchableTransport(transport))
                for name in ("blue", "blue/deep"):
                    await writer.pools.create(name)
            await until_launched(env, await env.claim("pooled"))
            (machine,) = await env.stage.guests()
            assert await pool_of(env, machine) == ""
            for name in ("blue", "blue/deep"):
                await asyncio.sleep(30)  # until the pools are known
                spec = {"resourcePool": name, "tags": [name.replace("/", "-")]}
                await env.kube.merge(ProxmoxNodeClass, "default", {"spec": spec})
                before = machine

                async def moved(name: str = name) -> bool:
                    (found,) = await env.stage.guests()
                    return await pool_of(env, found) == name

                await env.stage.until(f"the guest is in pool {name}", moved)
                (machine,) = await env.stage.guests()
                assert not admission.validation_errors(machine, before)
            assert "blue-deep" in machine.spec.tags
            assert await env.provider.drift(await env.kube.get(NodeClaim, "pooled")) == ""

    run_virtual(story())


def test_a_host_without_room_is_passed_over() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            lost = await env.claim("lost", node_class="none")
            await env.provider.launch(lost)
            instance = await env.provider.instance(lost)
            assert instance is not None
            assert instance.failure is LaunchFailure.NODE_CLASS_NOT_READY
            claim = await env.claim("full")
            await env.provider.launch(claim)
            machine = (await env.kube.list(ProxmoxMachine)).items[0]
            change = {"spec": {"memoryMiB": 1024 * 1024}}  # more than any host has
            await env.kube.merge(ProxmoxMachine, machine.name, change, "default")

            async def failed() -> NodeInstance | None:
                found = await env.provider.instance(claim)
                return found if found and found.state is InstanceState.FAILED else None

            found = await env.stage.until("the launch fails", failed)
            assert found.failure is LaunchFailure.INSUFFICIENT_CAPACITY
            await until_gone(env, claim)
            types = await env.provider.instance_types(await env.pool())
            blocked = {
                o.zone
                for t in types
                if t.name == found.labels[INSTANCE_TYPE]
                for o in t.offerings
                if not o.available
            }
            assert blocked == {found.labels[ZONE]}

    run_virtual(story())


def test_the_architecture_of_a_node_is_that_of_its_host() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            for host in env.environment.engine.runtimes["south"].region.hosts.values():
                host.machine = "aarch64"
            await asyncio.sleep(KEEP_SECONDS)  # until the kernels are read again
            types = await env.provider.instance_types(await env.pool())
            found = {(dict(o.labels)[REGION], dict(o.labels)[ARCH]) for o in types[0].offerings}
            assert found == {("north", "amd64"), ("south", "arm64")}
            body = node_claim("arm", {"cpu": "1", "memory": "1Gi"})
            body["spec"]["requirements"] = [{"key": ARCH, "operator": "In", "values": ["arm64"]}]
            await env.kube.create(body, NodeClaim.resource)
            instance = await until_launched(env, await env.kube.get(NodeClaim, "arm"))
            assert (instance.labels[ARCH], instance.labels[REGION]) == ("arm64", "south")

    run_virtual(story())
