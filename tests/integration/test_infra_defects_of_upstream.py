"""
Known defects of other Cluster API providers for Proxmox, each as a test that Moxwell has it not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from moxwell.api.infra.admission import DRY_RUN, validation_errors
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import (
    ProxmoxMachine,
    ProxmoxMachineSpec,
    ProxmoxMachineTemplate,
    ProxmoxMachineTemplateResource,
    ProxmoxMachineTemplateSpec,
)
from moxwell.api.ipam import IPAddressClaim
from moxwell.api.meta import ObjectMeta
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine, registry_of
from moxwell.testing.two_regions import WORLD, TwoRegions, is_true, message, ready, reason, running


def story(tell: Callable[[TwoRegions], Awaitable[None]], *regions: str, world: str = WORLD) -> None:
    async def main() -> None:
        async with running(*(regions or ("north",)), world=world) as (env, _):
            await tell(env)

    run_virtual(main())


def only_guest(env: TwoRegions, region: str = "north") -> Any:
    (guest,) = env.guests(region).values()
    return guest


def test_a_reused_vmid_never_deletes_a_foreign_guest() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        vmid = (await env.until("m", ready)).spec.virtual_machine_id
        env.chaos("north", "delete-guest", vmid=vmid)
        env.chaos("north", "take-vmid", vmid=vmid, name="stranger")
        await env.until("m", lambda m: reason(m) == "Vanished")
        await env.delete("m")
        await env.until_gone("m")
        assert only_guest(env).conf["name"] == "stranger"

    story(tell)


def test_another_vmid_is_claimed_if_the_first_is_taken() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.fault("north", "status", method="POST", path=".*/clone", text="busy")
        await apply_machine(env, "m")
        claimed = await env.until("m", lambda m: m.spec.virtual_machine_id is not None)
        first = claimed.spec.virtual_machine_id
        env.chaos("north", "take-vmid", vmid=first, name="stranger")
        env.engine.faults["north"].remove()
        machine = await env.until("m", ready)
        assert machine.spec.virtual_machine_id != first
        assert env.guests("north")[first or 0].conf["name"] == "stranger"

    story(tell)


@pytest.mark.parametrize(
    "task, text",
    [
        pytest.param("qmclone", "clone failed: got timeout", id="clone"),
        pytest.param("resize", "resize failed", id="resize"),
        pytest.param("qmstart", "start failed: QEMU exited with code 1", id="start"),
        pytest.param("imgcopy", "no space left on device", id="upload"),
    ],
)
def test_every_failure_is_retried(task: str, text: str) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.fault("north", "task-fail", task=task, text=text, times=3)
        disks = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}
        await apply_machine(env, "m", templateID=9000, disks=disks)
        await env.until("m", ready)
        assert only_guest(env).running

    story(tell)


def test_a_template_may_be_created_later() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateName="later")
        stuck = await env.until("m", lambda m: reason(m) == "TemplateNotFound")
        assert "no template with name 'later'; there are" in message(stuck)
        env.region("north").guests[9000].conf["name"] = "later"
        env.engine.runtimes["north"].mark_changed(9000)
        await env.until("m", ready, seconds=1200)

    story(tell)


def test_a_machine_without_configuration_changes_is_started() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, ipv4Config=None)
        await apply_machine(env, "m", templateID=9000, numCores=2, memoryMiB=2048)
        machine = await env.until("m", lambda m: bool(m.status.initialization.provisioned))
        assert env.guest_os.joined("north", machine.spec.virtual_machine_id or 0)

    story(tell)


def test_the_status_may_be_lost_at_any_time() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        resource = registry_of("ProxmoxMachine")
        for _ in range(30):
            await asyncio.sleep(1)
            wiped: dict[str, Any] = await env.kube.get(resource, "m", "default")
            wiped["status"] = {}
            await env.kube.replace(wiped, resource, subresource="status")
        await env.until("m", ready)
        assert len(env.guests("north")) == 1

    story(tell)


def test_zones_are_failure_domains_over_several_regions() -> None:
    zones = [
        {"zone": "b", "region": "south", "controlPlane": False},
        {"zone": "a", "region": "north", "nodes": ["pve3"]},
    ]

    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, zoneConfig=zones, region=None)
        await apply_machine(env, "m", failure_domain="a")
        machine = await env.until("m", ready)
        assert (machine.spec.region, machine.status.proxmox_node) == ("north", "pve3")
        cluster = await env.kube.get(ProxmoxCluster, "c", "default")
        domains = [(d.name, d.control_plane, d.attributes) for d in cluster.status.failure_domains]
        assert domains == [
            ("a", True, {"region": "north", "hosts": "pve3"}),
            ("b", False, {"region": "south"}),
        ]

    story(tell, "north", "south")


TEMPLATE = """\
      - vmid: 910{n}
        node: pve{n}
        name: local
        template: true
        config: {{cores: 1, memory: 1024, agent: 1, boot: "order=scsi0",
          scsi0: "lvm:base-910{n}-disk-0,size=4G", net0: "virtio=BC:24:11:00:00:0{n},bridge=vmbr0"}}
"""


def with_templates(*hosts: int) -> str:
    """The world file with a template on the local storage of some hosts of region north."""
    marker = "      - vmid: 201\n"
    return WORLD.replace(marker, "".join(TEMPLATE.format(n=n) for n in hosts) + marker, 1)


def test_a_template_on_every_host_is_cloned_on_the_same_host() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        for n in range(3):
            await apply_machine(env, f"m{n}", templateName="local", full=True)
        found = [await env.until(f"m{n}", ready) for n in range(3)]
        assert {m.status.proxmox_node for m in found} == {"pve1", "pve2", "pve3"}
        for machine in found:
            assert machine.spec.claim is not None
            assert machine.spec.claim.host == machine.spec.claim.template_host

    story(tell, world=with_templates(1, 2, 3))


def test_a_template_on_one_host_is_cloned_there_and_migrated() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateName="local", target="pve3", full=True)
        machine = await env.until("m", ready)
        assert machine.status.proxmox_node == "pve3"
        assert only_guest(env).node == "pve3"
        assert any(path.endswith("/migrate") for _, path in env.sent())

    story(tell, world=with_templates(1))


def test_dhcp_needs_no_pool() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, ipv4Config=None, dnsServers=None)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        assert [a.type for a in machine.status.addresses] == ["Hostname", "InternalIP"]

    story(tell)


def test_extra_disks_have_their_options() -> None:
    disk = {"disk": "virtio1", "sizeGb": 3, "storage": "lvm", "iothread": True, "backup": False}

    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, disks={"extra": [disk]})
        await env.until("m", ready)
        value = only_guest(env).conf["virtio1"]
        assert "backup=0" in value
        assert "iothread=1" in value
        await env.delete("m")
        await env.until_gone("m")
        assert not [v for v in env.volumes("north") if v.startswith("vm-") and "201" not in v]

    story(tell)


def test_high_availability_is_registered_and_purged() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, highAvailability={})
        machine = await env.until("m", ready)
        assert machine.status.ha_state
        await env.delete("m")
        await env.until_gone("m")
        assert env.region("north").ha.resources == {}

    story(tell)


@pytest.mark.parametrize(
    "task", [pytest.param("qmdestroy", id="destroy"), pytest.param("qmshutdown", id="shutdown")]
)
def test_a_deletion_task_that_fails_is_retried(task: str) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        env.fault("north", "task-fail", task=task, text="got timeout", times=2)
        await env.delete("m")
        await env.until_gone("m")
        assert env.guests("north") == {}

    story(tell)


def test_a_guest_that_ignores_shutdown_is_stopped() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, shutdownSeconds=20)
        await env.until("m", ready)
        env.guest_os.without_agent.add("m")
        await env.delete("m")
        await env.until_gone("m", seconds=90)
        assert env.guests("north") == {}

    story(tell)


def test_a_lost_response_creates_no_second_guest() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.fault("north", "cut-after", method="POST", path=".*/clone", times=1)
        await apply_machine(env, "m")
        await env.until("m", ready)
        assert len(env.guests("north")) == 1

    story(tell)


def test_cluster_class_dry_runs_are_allowed() -> None:
    def template(cores: int, **notes: str) -> ProxmoxMachineTemplate:
        inner = ProxmoxMachineTemplateResource(spec=ProxmoxMachineSpec(num_cores=cores))
        meta = ObjectMeta(name="t", annotations=notes)
        return ProxmoxMachineTemplate(
            metadata=meta, spec=ProxmoxMachineTemplateSpec(template=inner)
        )

    asked = template(4, **{DRY_RUN: ""})
    assert validation_errors(asked, template(2), dry_run=True) == ()
    assert "create a new template" in validation_errors(template(4), template(2))[0]


def test_the_bootstrap_iso_is_on_an_iso_storage_under_a_unique_name() -> None:
    async def tell(env: TwoRegions) -> None:
        zones = [{"zone": "a", "nodes": ["pve1"], "isoStorage": "local"}]
        await apply_cluster(env, zoneConfig=zones)
        env.guest_os.failing.update({"m0", "m1"})
        for n in range(2):
            await apply_machine(env, f"m{n}")
        for n in range(2):
            await env.until(f"m{n}", lambda m: reason(m) == "WaitingForBootstrap")
        names = env.isos("north")
        assert len(set(names)) == 2
        for n in range(2):
            machine = await env.machine(f"m{n}")
            assert any(machine.uid.replace("-", "") in name for name in names)
            assert machine.spec.claim is not None
            assert machine.spec.claim.iso_storage == "local"

    story(tell)


def test_a_slow_agent_is_waited_for() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.guest_os.without_agent.add("m")
        await apply_machine(env, "m")
        await env.until("m", lambda m: "agent does not answer" in message(m))
        await asyncio.sleep(1800)
        env.guest_os.without_agent.clear()
        await env.until("m", ready)

    story(tell)


@pytest.mark.parametrize(
    "seconds, least, most",
    [
        pytest.param(3, 0, 1, id="not at once"),
        pytest.param(12, 1, 4, id="soon, as some guests are quick"),
        pytest.param(60, 6, 16, id="a minute long"),
        pytest.param(1800, 50, 90, id="ever more seldom"),
    ],
)
def test_a_silent_agent_is_polled_less_often(seconds: int, least: int, most: int) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.guest_os.without_agent.add("m")
        await apply_machine(env, "m")
        while not any(path.endswith("/status/start") for _, path in env.sent()):
            await asyncio.sleep(0.5)  # the status is written late
        await asyncio.sleep(seconds)
        asked = sum("/agent/" in path for _, path in env.sent())
        assert least <= asked <= most, asked

    story(tell)


def test_checks_can_be_skipped() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        env.guest_os.without_agent.add("m")
        await apply_machine(env, "m", templateID=9000, checks={"skipQemuGuestAgent": True})
        await env.until("m", lambda m: is_true(m, "Ready"))
        assert not any("/agent/" in path for _, path in env.sent())

    story(tell)


@pytest.mark.parametrize(
    "wanted, form",
    [
        pytest.param("UUID", "proxmox://{uid}", id="as CAPMOX writes it"),
        pytest.param(None, "proxmox://north/{vmid}", id="as CCM and CSI write it"),
    ],
)
def test_provider_id_and_instance_id_agree(wanted: str | None, form: str) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, providerIDFormat=wanted)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        expected = form.format(uid=machine.uid, vmid=machine.spec.virtual_machine_id)
        assert machine.spec.provider_id == expected
        (files,) = env.guest_os.config_drives.values()
        meta = yaml.safe_load(files["meta-data"])
        assert "proxmox://" + meta["instance-id"] == expected

    story(tell)


def test_the_endpoint_may_be_claimed_from_a_pool() -> None:
    pool = {"kind": "InClusterIPPool", "name": "vips"}

    async def tell(env: TwoRegions) -> None:
        spec = {"addresses": ["10.0.9.1-10.0.9.9"], "prefix": 24, "gateway": "10.0.9.254"}
        meta = {"name": "vips", "namespace": "default"}
        body = {"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool"}
        await env.kube.create(
            {**body, "metadata": meta, "spec": spec}, registry_of("InClusterIPPool")
        )
        await apply_cluster(env, controlPlaneEndpoint=None, controlPlaneEndpointPool=pool)
        await apply_machine(env, "m")
        await env.until("m", ready)
        cluster = await env.kube.get(ProxmoxCluster, "c", "default")
        endpoint = cluster.spec.control_plane_endpoint
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("10.0.9.1", 6443)

    story(tell)


async def own_claim(env: TwoRegions, name: str, owner: dict[str, Any] | None) -> None:
    """Set the owner reference of a claim, as ``clusterctl move`` does."""
    refs = None
    if owner is not None:
        meta = owner["metadata"]
        kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        refs = [{**kind, "name": meta["name"], "uid": meta["uid"], "controller": True}]
    change = {"metadata": {"ownerReferences": refs}}
    await env.kube.merge(IPAddressClaim, name, change, "default")


def test_a_guest_survives_clusterctl_move() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        before = await env.until("m", ready)
        resource = registry_of("ProxmoxMachine")
        old: dict[str, Any] = await env.kube.get(resource, "m", "default")
        (claim,) = (await env.kube.list(IPAddressClaim)).items
        await own_claim(env, claim.name, None)
        pause = {"cluster.x-k8s.io/paused": "true"}
        change = {"metadata": {"annotations": pause, "finalizers": None}}
        await env.kube.merge(resource, "m", change, "default")
        await env.kube.delete(resource, "m", "default")
        kept = {k: old["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
        moved = {"apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": kept}
        new = await env.kube.create({**moved, "spec": old["spec"]}, resource)
        await own_claim(env, claim.name, new)
        after = await env.until("m", ready)
        assert after.uid != before.uid
        assert only_guest(env).vmid == before.spec.virtual_machine_id
        assert after.status.addresses == before.status.addresses
        await env.delete("m")
        await env.until_gone("m")
        assert env.guests("north") == {}

    story(tell)


def test_pci_devices_and_cpu_type() -> None:
    pci = [{"mapping": "gpu", "pcie": True}]

    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(
            env, "m", templateID=9000, cpuType="host", machineType="q35", pciDevices=pci
        )
        await env.until("m", lambda m: m.spec.claim is not None)
        await asyncio.sleep(30)
        conf = only_guest(env).conf
        assert conf["hostpci0"] == "mapping=gpu,pcie=1"
        assert (conf["cpu"], conf["machine"]) == ("host", "q35")

    story(tell)


def test_migrations_are_followed() -> None:
    async def tell(env: TwoRegions) -> None:
        zones = [{"zone": "a", "nodes": ["pve1"]}, {"zone": "b", "nodes": ["pve2", "pve3"]}]
        await apply_cluster(env, zoneConfig=zones)
        await apply_machine(env, "m", failure_domain="a")
        machine = await env.until("m", ready)
        vmid = machine.spec.virtual_machine_id
        env.chaos("north", "move-guest", vmid=vmid, node="pve2")
        moved = await env.until("m", lambda m: m.status.proxmox_node == "pve2")
        assert moved.status.failure_domain == "b"
        assert is_true(moved, "Ready")

    story(tell)


def test_the_template_is_chosen_by_kubernetes_version() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", version="v1.34.1", numCores=1)
        machine = await env.until("m", ready)
        assert machine.spec.claim is not None
        assert machine.spec.claim.template == 9000

    story(tell)


def test_replicas_are_spread_and_cpus_are_limited() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, schedulerHints={"cpuAdjustment": 100})
        for n in range(4):
            await apply_machine(env, f"m{n}", templateID=9000, numCores=2, spread="Require")
        await asyncio.sleep(180)
        found = (await env.kube.list(ProxmoxMachine)).items
        placed = [m for m in found if ready(m)]
        (left,) = [m for m in found if not ready(m)]
        assert {m.status.proxmox_node for m in placed} == {"pve1", "pve2", "pve3"}
        assert "already runs 1 of these replicas, and they must be on different hosts" in message(
            left
        )
        await apply_machine(env, "big", templateID=9000, numCores=31)
        big = await env.until("big", lambda m: reason(m) == "InsufficientResources")
        assert "needs 31 CPUs, 30 are free" in message(big)

    story(tell)
