"""infra.cluster with a simulator: regions, endpoints, pools, deletion; upstream manifests."""

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import (
    ProxmoxMachineSpec,
    ProxmoxMachineTemplate,
    ProxmoxMachineTemplateResource,
    ProxmoxMachineTemplateSpec,
)
from moxwell.api.ipam import InClusterIPPool
from moxwell.api.meta import ObjectMeta
from moxwell.app.embedded_api import open_store
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine, registry_of
from moxwell.testing.two_regions import (
    TOKEN,
    TOKEN_SECRET,
    WORLD,
    Program,
    TwoRegions,
    configs,
    ready,
    reason,
    running,
)

SHARED = Path(__file__).parents[3] / "shared"
CAPI, INFRA = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"


def story(
    tell: Callable[[TwoRegions, Program], Awaitable[None]],
    *regions: str,
    world: str = WORLD,
    prepare: Callable[[TwoRegions], None] | None = None,
) -> None:
    async def main() -> None:
        async with running(*regions, world=world, prepare=prepare) as (env, program):
            await tell(env, program)

    run_virtual(main())


async def until_cluster(
    env: TwoRegions, what: Callable[[ProxmoxCluster], bool], seconds: float = 300
) -> ProxmoxCluster:
    end = env.clock.monotonic() + seconds
    while not what(found := await env.kube.get(ProxmoxCluster, "c", "default")):
        assert env.clock.monotonic() < end, found.status
        await asyncio.sleep(1)
    return found


def is_ready(cluster: ProxmoxCluster) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in cluster.status.conditions)


def why(cluster: ProxmoxCluster, type_: str = "Ready") -> str:
    return next((c.reason for c in cluster.status.conditions if c.type == type_), "")


def encoded(**data: str) -> dict[str, str]:
    return {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}


async def put_secret(env: TwoRegions, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await env.kube.apply({**body, "data": encoded(**data)}, registry_of("Secret"), force=True)


def test_a_region_from_credentials_is_used_and_rotated() -> None:
    async def tell(env: TwoRegions, program: Program) -> None:
        await put_secret(env, url="https://south.x:8006", token="nonsense", secret="x")
        await apply_cluster(env, region=None, credentialsRef={"name": "s"})
        refused = await until_cluster(env, lambda c: why(c) == "InvalidConfiguration")
        assert "token_id must look like" in str(refused.status.conditions)
        assert "nonsense" not in str(refused.status.conditions)
        await put_secret(env, url="https://south.x:8006", token=TOKEN, secret=TOKEN_SECRET)
        await until_cluster(env, is_ready)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        assert machine.spec.region == "default.s"
        assert len(env.guests("south")) == 1
        secret = await env.kube.get(registry_of("Secret"), "s", "default")
        assert "clusterctl.cluster.x-k8s.io/move" in secret["metadata"]["labels"]
        assert "default.s" not in program.regions
        assert "default.s" in program.regions.scope("default/c")
        await env.delete("m")
        await env.until_gone("m")
        await env.kube.delete(ProxmoxCluster, "c", "default")
        await asyncio.sleep(30)
        assert "default.s" not in program.regions.scope("default/c")

    story(tell, "north")


def test_clusters_work_with_credentials_only() -> None:
    async def tell(env: TwoRegions, program: Program) -> None:
        program.infra.registry.configure(())
        assert list(program.regions) == []
        await apply_cluster(env, region=None)
        stuck = await until_cluster(env, lambda c: why(c) == "RegionNotNamed")
        assert "spec.credentialsRef" in str(stuck.status.conditions)
        await put_secret(env, url="https://south.x:8006", token=TOKEN, secret=TOKEN_SECRET)
        change = {"spec": {"credentialsRef": {"name": "s"}}}
        await env.kube.merge(ProxmoxCluster, "c", change, "default")
        await until_cluster(env, is_ready)
        await apply_machine(env, "m")
        assert (await env.until("m", ready)).spec.region == "default.s"
        await env.delete("m")
        await env.until_gone("m")
        assert env.guests("south") == {}

    story(tell, "north")


def test_a_deleted_secret_is_kept_while_guests_exist() -> None:
    async def tell(env: TwoRegions, program: Program) -> None:
        secrets = registry_of("Secret")
        await put_secret(env, url="https://south.x:8006", token=TOKEN, secret=TOKEN_SECRET)
        await apply_cluster(env, region=None, credentialsRef={"name": "s"})
        await apply_machine(env, "m")
        await env.until("m", ready)
        await env.kube.delete(secrets, "s", "default")
        await env.kube.delete(ProxmoxCluster, "c", "default")
        await until_cluster(env, lambda c: why(c) == "WaitingForMachines")
        held = await env.kube.get(secrets, "s", "default")
        assert held["metadata"]["deletionTimestamp"]
        await env.delete("m")
        await env.until_gone("m")
        await asyncio.sleep(30)
        assert await env.kube.find(secrets, "s", "default") is None
        assert env.guests("south") == {}

    story(tell, "north")


def test_a_secret_of_two_clusters_is_released_with_the_second() -> None:
    async def tell(env: TwoRegions, program: Program) -> None:
        secrets = registry_of("Secret")
        await put_secret(env, url="https://south.x:8006", token=TOKEN, secret=TOKEN_SECRET)
        await apply_cluster(env, region=None, credentialsRef={"name": "s"})
        await until_cluster(env, is_ready)
        twin = {"credentialsRef": {"name": "s"}}
        body = {"metadata": {"name": "d", "namespace": "default"}, "spec": twin}
        await env.kube.create(msgspec.convert(body, ProxmoxCluster))
        await asyncio.sleep(1)
        await env.kube.delete(ProxmoxCluster, "c", "default")
        await asyncio.sleep(30)
        assert (await env.kube.get(secrets, "s", "default"))["metadata"]["finalizers"]
        await env.kube.delete(ProxmoxCluster, "d", "default")
        await asyncio.sleep(30)
        free = await env.kube.get(secrets, "s", "default")
        assert not free["metadata"].get("finalizers")

    story(tell, "north")


def test_a_cluster_waits_for_its_machines_and_leaves_nothing() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        assert len((await env.kube.list(InClusterIPPool)).items) == 1
        await env.kube.delete(ProxmoxCluster, "c", "default")
        waiting = await until_cluster(env, lambda c: why(c) == "WaitingForMachines")
        assert "1 machines remain: m" in str(waiting.status.conditions)
        await env.delete("m")
        await env.until_gone("m")
        await asyncio.sleep(30)
        assert await env.kube.find(ProxmoxCluster, "c", "default") is None
        assert (await env.kube.list(InClusterIPPool)).items == ()

    story(tell, "north")


def test_pools_of_a_deleted_cluster_have_no_reuse_grace_period() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env)
        await until_cluster(env, lambda c: bool(c.status.initialization.provisioned))
        [pool] = (await env.kube.list(InClusterIPPool)).items
        assert pool.spec.address_reuse_grace_period_seconds == 60
        hold = {"metadata": {"finalizers": ["test/hold"]}}
        await env.kube.merge(Cluster, "c", hold, "default")
        await env.kube.delete(Cluster, "c", "default")
        await asyncio.sleep(30)
        [pool] = (await env.kube.list(InClusterIPPool)).items
        assert pool.spec.address_reuse_grace_period_seconds == 0

    story(tell, "north")


def test_a_hosted_control_plane_sets_the_endpoint() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env, controlPlaneEndpoint=None, externalManagedControlPlane=True)
        await until_cluster(env, lambda c: why(c) == "MissingControlPlaneEndpoint")
        change = {"spec": {"controlPlaneEndpoint": {"host": "10.0.0.77", "port": 6443}}}
        await env.kube.merge(ProxmoxCluster, "c", change, "default")
        ready_ = await until_cluster(env, is_ready)
        assert ready_.status.initialization.provisioned

    story(tell, "north")


def test_region_health_is_reported_continuously() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env)
        await until_cluster(env, is_ready)
        env.fault("north", "cut-before")
        down = await until_cluster(env, lambda c: why(c, "ProxmoxAvailable") != "Provisioned")
        assert down.status.initialization.provisioned
        env.engine.faults["north"].remove()
        await until_cluster(env, is_ready)

    story(tell, "north")


def test_two_regions_and_none_named_is_reported() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env, region=None)
        await until_cluster(env, lambda c: why(c) == "RegionNotNamed")

    story(tell)


def test_templates_report_the_capacity_of_their_nodes() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        body = {"apiVersion": f"{INFRA}/v1alpha2", "kind": "ProxmoxMachineTemplate"}
        spec = {"template": {"spec": {"templateID": 9000, "sourceNode": "pve1", "numCores": 4}}}
        resource = registry_of("ProxmoxMachineTemplate", "v1alpha2")
        meta = {"name": "t", "namespace": "default"}
        await env.kube.create({**body, "metadata": meta, "spec": spec}, resource)
        await asyncio.sleep(400)
        found = await env.kube.get(ProxmoxMachineTemplate, "t", "default")
        assert found.status.capacity["cpu"] == "4"
        assert found.status.capacity["memory"] == "2048Mi"

    story(tell, "north")


@pytest.mark.parametrize(
    "arch, machine, expected",
    [
        pytest.param("", "x86_64", "amd64", id="as its host is"),
        pytest.param("", "aarch64", "arm64", id="on a host of another kind"),
        pytest.param("aarch64", "x86_64", "arm64", id="as the template says"),
        pytest.param("", "riscv64", "riscv64", id="of a kind we have no word for"),
    ],
)
def test_templates_report_the_architecture_of_their_nodes(
    arch: str, machine: str, expected: str
) -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        region = env.region("north")
        template = region.guests[9000]
        region.hosts[template.node].machine = machine
        if arch:
            template.conf["arch"] = arch
        inner = ProxmoxMachineSpec(template_id=9000, num_cores=4, memory_mib=4096)
        meta = ObjectMeta(name="t", namespace="default")
        spec = ProxmoxMachineTemplateSpec(template=ProxmoxMachineTemplateResource(spec=inner))
        await env.kube.create(ProxmoxMachineTemplate(metadata=meta, spec=spec))
        await asyncio.sleep(400)
        found = await env.kube.get(ProxmoxMachineTemplate, "t", "default")
        assert found.status.node_info is not None
        assert found.status.node_info.architecture == expected
        asked = len(env.sent())
        await asyncio.sleep(1200)
        assert sum(p.endswith(("/config", "/status")) for _, p in env.sent()[asked:]) == 0

    story(tell, "north")


def test_a_placement_can_be_explained() -> None:
    async def tell(env: TwoRegions, program: Program) -> None:
        await apply_cluster(env, allowedNodes=["pve2", "pve3"])
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        rows = await program.infra.explainer.explain(Key("default", "m"))
        assert rows[0].here
        assert rows[0].host == machine.status.proxmox_node
        assert {r.host: r.why_not for r in rows}["pve1"] == ("not among the allowed hosts",)

    story(tell, "north")


# ---- manifests that people have

SEED_WORLD = (
    WORLD.replace("name: pve1,", "name: pve,")
    .replace("node: pve1", "node: pve")
    .replace("        name: ubuntu\n", "        name: ubuntu-22.04-k8s\n")
)


def documents(text: str) -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.S)
    found = []
    for block in blocks:
        if "kind: ProxmoxCluster" in block:
            found += [d for d in yaml.safe_load_all(block) if d]
    return found


async def apply_linked(env: TwoRegions, docs: list[dict[str, Any]]) -> None:
    """Apply documents with owner references as Cluster API sets them."""
    owners: dict[tuple[str, str], dict[str, Any]] = {}
    for doc in sorted(docs, key=lambda d: d["apiVersion"].startswith(INFRA)):
        version = doc["apiVersion"].rpartition("/")[2]
        resource = registry_of(doc["kind"], version)
        meta = {**doc["metadata"], "namespace": "default"}
        if doc["kind"] in ("ProxmoxCluster", "ProxmoxMachine"):
            kind = doc["kind"].removeprefix("Proxmox")
            owner = owners[kind, meta["name"]]
            cluster = owner["spec"].get("clusterName", meta["name"])
            meta["labels"] = {f"{CAPI}/cluster-name": cluster}
            ref = {"apiVersion": owner["apiVersion"], "kind": kind, "controller": True}
            meta["ownerReferences"] = [
                {**ref, "name": meta["name"], "uid": owner["metadata"]["uid"]}
            ]
        made = await env.kube.create({**doc, "metadata": meta}, resource)
        owners[doc["kind"], meta["name"]] = made


@pytest.mark.skipif(not SHARED.exists(), reason="the shared seeds are not here")
def test_short_manifests_create_a_guest() -> None:
    docs = documents((SHARED / "seeds" / "003_076fa2b8a275512a.txt").read_text())

    def prepare(env: TwoRegions) -> None:
        env.urls["north"] = ("https://proxmox.example.com:8006",)

    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_linked(env, docs)
        machine = await env.until("worker-1", lambda m: reason(m) == "Provisioned")
        (guest,) = env.guests("north").values()
        assert guest.node == "pve"
        assert (guest.conf["cores"], guest.conf["memory"]) == (4, "8192")
        assert "size=50G" in guest.conf["scsi0"]
        assert machine.spec.region == "north"
        short = await env.kube.get(registry_of("ProxmoxMachine", "v1beta1"), "worker-1", "default")
        assert short["spec"]["nodeName"] == "pve"
        assert short["spec"]["diskSize"] == 50

    story(tell, world=SEED_WORLD, prepare=prepare)


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_machines_of_capmox_work_unchanged(version: str) -> None:
    default = {"bridge": "vmbr0", "model": "virtio"}
    network: dict[str, Any] = {"default": default}
    if version == "v1alpha2":
        network = {"networkDevices": [{"name": "net0", **default}]}

    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env, providerIDFormat="UUID")
        await apply_machine(
            env,
            "m",
            api=version,
            sourceNode="pve1",
            templateID=9000,
            format="qcow2",
            full=True,
            storage="lvm",
            numSockets=2,
            numCores=4,
            memoryMiB=8192,
            disks={"bootVolume": {"disk": "scsi0", "sizeGb": 30}},
            network=network,
        )
        machine = await env.until("m", ready)
        (guest,) = env.guests("north").values()
        assert guest.conf["scsi0"].startswith("lvm:")
        assert machine.spec.provider_id == f"proxmox://{machine.uid}"
        old = await env.kube.get(registry_of("ProxmoxMachine", version), "m", "default")
        assert old["spec"]["virtualMachineID"] == guest.vmid
        if version == "v1alpha1":
            assert old["status"]["ready"] is True
            assert old["spec"]["network"]["default"]["bridge"] == "vmbr0"

    story(tell, "north")


def test_a_machine_made_by_capmox_is_adopted_by_its_uuid_and_a_tag() -> None:
    uuid = "99999999-1111-4222-8333-444444444444"

    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env, providerIDFormat="UUID")
        env.chaos("north", "take-vmid", vmid=120, name="m", node="pve2")
        guest = env.region("north").guests[120]
        guest.conf |= {
            "smbios1": f"uuid={uuid}",
            "tags": "ip_net0_10.0.0.9;moxwell-adopt.default.c",
        }
        guest.running = True
        await apply_machine(
            env,
            "m",
            templateID=9000,
            region="north",
            virtualMachineID=120,
            providerID=f"proxmox://{uuid}",
        )
        machine = await env.until("m", ready)
        assert machine.spec.claim is not None
        assert machine.spec.claim.uuid == uuid
        assert f"moxwell-owner={uuid}" in str(guest.conf["description"])
        assert "moxwell-cluster=default/c" in str(guest.conf["description"])
        assert "ip_net0_10.0.0.9" in str(guest.conf["tags"])
        assert "moxwell-adopt" not in str(guest.conf["tags"])
        await env.delete("m")
        await env.until_gone("m")
        assert 120 not in env.region("north").guests

    story(tell, "north")


def test_a_guest_with_only_the_vmid_is_not_adopted() -> None:
    async def tell(env: TwoRegions, _: Program) -> None:
        await apply_cluster(env, providerIDFormat="UUID")
        env.chaos("north", "take-vmid", vmid=120, name="m", node="pve2")
        await apply_machine(
            env,
            "m",
            templateID=9000,
            region="north",
            virtualMachineID=120,
            providerID="proxmox://99999999-1111-4222-8333-444444444444",
        )
        await env.until("m", lambda m: reason(m) == "NotOurs")
        await env.delete("m")
        await env.until_gone("m")
        assert 120 in env.region("north").guests

    story(tell, "north")


def capmox_documents() -> list[Any]:
    found = []
    values = {"CLUSTER_NAME": "mox", "NODE_IP_RANGES": "[10.0.0.10]", "DNS_SERVERS": "[8.8.8.8]"}
    numbers = {"IP_PREFIX": "24", "TEMPLATE_VMID": "9000", "BOOT_VOLUME_DEVICE": "scsi0"}
    others = {"GATEWAY": "10.0.0.1", "BRIDGE": "vmbr0", "CONTROL_PLANE_ENDPOINT_IP": "10.0.0.4"}
    known = {**values, **numbers, **others, "IPV6_PREFIX": "64", "NODE_IPV6_PREFIX": "64"}

    def fill(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in known or default is not None:
            return known.get(name, default or "")
        six = "V6" in name or "6" in name
        if "RANGE" in name:
            return '["2001:db8::10"]' if six else "[10.9.0.9]"
        if "PREFIX" in name:
            return "64" if six else "24"
        if "GATEWAY" in name:
            return '"2001:db8::1"' if six else "10.9.0.1"
        return "x"

    for path in sorted((SHARED / "manifests" / "capmox").glob("*.yaml")):
        text = re.sub(r"\$\{(\w+)(?::?=([^}]*))?\}", fill, path.read_text())
        for n, doc in enumerate(yaml.safe_load_all(text)):
            if doc and str(doc["apiVersion"]).startswith(INFRA):
                found.append(pytest.param(doc, id=f"{path.stem} {doc['kind']} {n}"))
    return found


@pytest.mark.skipif(not SHARED.exists(), reason="the shared manifests are not here")
@pytest.mark.parametrize("doc", capmox_documents())
def test_every_manifest_of_capmox_is_accepted_and_read_back(doc: dict[str, Any]) -> None:
    version = doc["apiVersion"].rpartition("/")[2]
    resource = registry_of(doc["kind"], version)

    async def main() -> None:
        store = await open_store(LoopClock())
        kube = Kube(store)
        meta = {**doc["metadata"], "namespace": "default"}
        await kube.create({**doc, "metadata": meta}, resource)
        back = await kube.get(resource, meta["name"], "default")
        hub = await kube.get(registry_of(doc["kind"]), meta["name"], "default")
        assert hub["apiVersion"] == f"{INFRA}/v1beta2"
        if doc.get("spec"):
            assert back["spec"] == doc["spec"]
        await store.__aexit__(None, None, None)

    run_virtual(main())


def test_a_machine_cannot_use_a_region_that_another_cluster_added() -> None:
    async def main() -> None:
        async with running("north") as (env, life):
            await apply_cluster(env)
            await asyncio.sleep(10)
            (theirs,) = configs("south")
            life.infra.registry.add("somebody else", [theirs])
            await asyncio.sleep(10)
            known = f"proxmox://{'0' * 8}-0000-4000-8000-{'0' * 12}"
            where: dict[str, Any] = {
                "region": "south",
                "virtualMachineID": 9000,
                "providerID": known,
            }
            await apply_machine(env, "m", templateID=9000, **where)
            machine = await env.until("m", lambda m: reason(m) == "RegionUnknown")
            assert machine.spec.claim is None

    run_virtual(main())
