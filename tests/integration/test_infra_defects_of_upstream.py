"""The twenty pains of those who ran machines on Proxmox before, each as a test that it is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from moxwell.api.infra.admission import DRY_RUN, validation_errors
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import (
    ProxmoxMachineTemplateResource,
    ProxmoxMachineSpec,
    ProxmoxMachineTemplateSpec,
    ProxmoxMachine,
    ProxmoxMachineTemplate,
)
from moxwell.api.ipam import IPAddressClaim
from moxwell.api.meta import ObjectMeta
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine, registry_of
from moxwell.testing.two_regions import WORLD, Estate, is_true, message, ready, reason, running


def story(tell: Callable[[Estate], Awaitable[None]], *regions: str, world: str = WORLD) -> None:
    async def main() -> None:
        async with running(*(regions or ("north",)), world=world) as (estate, _):
            await tell(estate)

    run_virtual(main())


def only_guest(estate: Estate, region: str = "north") -> Any:
    (guest,) = estate.guests(region).values()
    return guest


def test_pain_01_a_reused_vmid_never_kills_a_stranger() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m")
        vmid = (await estate.until("m", ready)).spec.virtual_machine_id
        estate.mischief("north", "delete-guest", vmid=vmid)
        estate.mischief("north", "take-vmid", vmid=vmid, name="stranger")
        await estate.until("m", lambda m: reason(m) == "Vanished")
        await estate.delete("m")
        await estate.until_gone("m")
        assert only_guest(estate).conf["name"] == "stranger"

    story(tell)


def test_pain_01_a_vmid_that_is_taken_meanwhile_is_claimed_anew() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.fault("north", "status", method="POST", path=".*/clone", text="busy")
        await apply_machine(estate, "m")
        claimed = await estate.until("m", lambda m: m.spec.virtual_machine_id is not None)
        first = claimed.spec.virtual_machine_id
        estate.mischief("north", "take-vmid", vmid=first, name="stranger")
        estate.engine.faults["north"].remove()
        machine = await estate.until("m", ready)
        assert machine.spec.virtual_machine_id != first
        assert estate.guests("north")[first or 0].conf["name"] == "stranger"

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
def test_pain_02_no_failure_is_for_ever(task: str, text: str) -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.fault("north", "task-fail", task=task, text=text, times=3)
        disks = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}
        await apply_machine(estate, "m", templateID=9000, disks=disks)
        await estate.until("m", ready)
        assert only_guest(estate).running

    story(tell)


def test_pain_02_a_template_may_come_later() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateName="later")
        stuck = await estate.until("m", lambda m: reason(m) == "TemplateNotFound")
        assert "no template with name 'later'; there are" in message(stuck)
        estate.region("north").guests[9000].conf["name"] = "later"
        estate.engine.runtimes["north"].mark_changed(9000)
        await estate.until("m", ready, seconds=1200)

    story(tell)


def test_pain_03_a_machine_without_any_difference_is_still_booted() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate, ipv4Config=None)
        await apply_machine(estate, "m", templateID=9000, numCores=2, memoryMiB=2048)
        machine = await estate.until("m", lambda m: bool(m.status.initialization.provisioned))
        assert estate.insides.joined("north", machine.spec.virtual_machine_id or 0)

    story(tell)


def test_pain_03_status_is_output_and_may_be_lost_at_any_time() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m")
        resource = registry_of("ProxmoxMachine")
        for _ in range(30):
            await asyncio.sleep(1)
            wiped: dict[str, Any] = await estate.kube.get(resource, "m", "default")
            wiped["status"] = {}
            await estate.kube.replace_status(wiped, resource)
        await estate.until("m", ready)
        assert len(estate.guests("north")) == 1

    story(tell)


def test_pain_04_zones_are_failure_domains_over_several_regions() -> None:
    zones = [
        {"zone": "b", "region": "south", "controlPlane": False},
        {"zone": "a", "region": "north", "nodes": ["pve3"]},
    ]

    async def tell(estate: Estate) -> None:
        await apply_cluster(estate, zoneConfig=zones, region=None)
        await apply_machine(estate, "m", failure_domain="a")
        machine = await estate.until("m", ready)
        assert (machine.spec.region, machine.status.proxmox_node) == ("north", "pve3")
        ground = await estate.kube.get(ProxmoxCluster, "c", "default")
        said = [(d.name, d.control_plane, d.attributes) for d in ground.status.failure_domains]
        assert said == [
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
    """The estate with a template on the local storage of some hosts of the north."""
    marker = "      - vmid: 201\n"
    return WORLD.replace(marker, "".join(TEMPLATE.format(n=n) for n in hosts) + marker, 1)


def test_pain_05_a_template_on_every_host_is_cloned_where_it_lies() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        for n in range(3):
            await apply_machine(estate, f"m{n}", templateName="local", full=True)
        found = [await estate.until(f"m{n}", ready) for n in range(3)]
        assert {m.status.proxmox_node for m in found} == {"pve1", "pve2", "pve3"}
        for machine in found:
            assert machine.spec.claim is not None
            assert machine.spec.claim.host == machine.spec.claim.template_host

    story(tell, world=with_templates(1, 2, 3))


def test_pain_05_a_template_on_one_host_is_cloned_there_and_migrated() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateName="local", target="pve3", full=True)
        machine = await estate.until("m", ready)
        assert machine.status.proxmox_node == "pve3"
        assert only_guest(estate).node == "pve3"
        assert any(path.endswith("/migrate") for _, path in estate.sent())

    story(tell, world=with_templates(1))


def test_pain_06_dhcp_needs_no_pool() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate, ipv4Config=None, dnsServers=None)
        await apply_machine(estate, "m")
        machine = await estate.until("m", ready)
        assert [a.type for a in machine.status.addresses] == ["Hostname", "InternalIP"]

    story(tell)


def test_pain_07_extra_disks_have_their_options() -> None:
    disk = {"disk": "virtio1", "sizeGb": 3, "storage": "lvm", "iothread": True, "backup": False}

    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateID=9000, disks={"extra": [disk]})
        await estate.until("m", ready)
        value = only_guest(estate).conf["virtio1"]
        assert "backup=0" in value
        assert "iothread=1" in value
        await estate.delete("m")
        await estate.until_gone("m")
        assert not [v for v in estate.volumes("north") if v.startswith("vm-") and "201" not in v]

    story(tell)


def test_pain_08_high_availability_is_registered_and_purged() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateID=9000, highAvailability={})
        machine = await estate.until("m", ready)
        assert machine.status.ha_state
        await estate.delete("m")
        await estate.until_gone("m")
        assert estate.region("north").ha.resources == {}

    story(tell)


@pytest.mark.parametrize(
    "task", [pytest.param("qmdestroy", id="destroy"), pytest.param("qmshutdown", id="shutdown")]
)
def test_pain_09_a_deletion_that_fails_later_is_tried_again(task: str) -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m")
        await estate.until("m", ready)
        estate.fault("north", "task-fail", task=task, text="got timeout", times=2)
        await estate.delete("m")
        await estate.until_gone("m")
        assert estate.guests("north") == {}

    story(tell)


def test_pain_09_a_guest_that_does_not_listen_is_stopped_in_the_end() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateID=9000, shutdownSeconds=20)
        await estate.until("m", ready)
        estate.insides.deaf.add("m")
        await estate.delete("m")
        await estate.until_gone("m", seconds=90)
        assert estate.guests("north") == {}

    story(tell)


def test_pain_10_a_lost_answer_makes_no_second_guest() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.fault("north", "cut-after", method="POST", path=".*/clone", times=1)
        await apply_machine(estate, "m")
        await estate.until("m", ready)
        assert len(estate.guests("north")) == 1

    story(tell)


def test_pain_11_cluster_class_may_ask_what_would_happen() -> None:
    def template(cores: int, **notes: str) -> ProxmoxMachineTemplate:
        inner = ProxmoxMachineTemplateResource(spec=ProxmoxMachineSpec(num_cores=cores))
        meta = ObjectMeta(name="t", annotations=notes)
        return ProxmoxMachineTemplate(metadata=meta, spec=ProxmoxMachineTemplateSpec(template=inner))

    asked = template(4, **{DRY_RUN: ""})
    assert validation_errors(asked, template(2), dry_run=True) == ()
    assert "create a new template" in validation_errors(template(4), template(2))[0]


def test_pain_12_the_seed_lies_where_isos_may_lie_under_a_name_of_its_own() -> None:
    async def tell(estate: Estate) -> None:
        zones = [{"zone": "a", "nodes": ["pve1"], "isoStorage": "local"}]
        await apply_cluster(estate, zoneConfig=zones)
        estate.insides.broken.update({"m0", "m1"})
        for n in range(2):
            await apply_machine(estate, f"m{n}")
        for n in range(2):
            await estate.until(f"m{n}", lambda m: reason(m) == "WaitingForBootstrap")
        names = estate.isos("north")
        assert len(set(names)) == 2
        for n in range(2):
            machine = await estate.machine(f"m{n}")
            assert any(machine.uid.replace("-", "") in name for name in names)
            assert machine.spec.claim is not None
            assert machine.spec.claim.iso_storage == "local"

    story(tell)


def test_pain_13_a_slow_agent_is_waited_for() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.insides.deaf.add("m")
        await apply_machine(estate, "m")
        await estate.until("m", lambda m: "agent does not answer" in message(m))
        await asyncio.sleep(1800)
        estate.insides.deaf.clear()
        await estate.until("m", ready)

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
def test_pain_13_a_silent_agent_is_asked_seldom(seconds: int, least: int, most: int) -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.insides.deaf.add("m")
        await apply_machine(estate, "m")
        await estate.until("m", lambda m: reason(m) == "WaitingForBootstrap")
        await asyncio.sleep(seconds)
        asked = sum("/agent/" in path for _, path in estate.sent())
        assert least <= asked <= most, asked

    story(tell)


def test_pain_13_checks_can_be_skipped() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        estate.insides.deaf.add("m")
        await apply_machine(estate, "m", templateID=9000, checks={"skipQemuGuestAgent": True})
        await estate.until("m", lambda m: is_true(m, "Ready"))
        assert not any("/agent/" in path for _, path in estate.sent())

    story(tell)


@pytest.mark.parametrize(
    "wanted, form",
    [
        pytest.param("UUID", "proxmox://{uid}", id="as CAPMOX writes it"),
        pytest.param(None, "proxmox://north/{vmid}", id="as CCM and CSI write it"),
    ],
)
def test_pain_14_provider_id_and_instance_id_agree(wanted: str | None, form: str) -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate, providerIDFormat=wanted)
        await apply_machine(estate, "m")
        machine = await estate.until("m", ready)
        expected = form.format(uid=machine.uid, vmid=machine.spec.virtual_machine_id)
        assert machine.spec.provider_id == expected
        (seed,) = estate.insides.seeds.values()
        meta = yaml.safe_load(seed["meta-data"])
        assert "proxmox://" + meta["instance-id"] == expected

    story(tell)


def test_pain_15_the_endpoint_may_come_from_a_pool() -> None:
    pool = {"kind": "InClusterIPPool", "name": "vips"}

    async def tell(estate: Estate) -> None:
        spec = {"addresses": ["10.0.9.1-10.0.9.9"], "prefix": 24, "gateway": "10.0.9.254"}
        meta = {"name": "vips", "namespace": "default"}
        body = {"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool"}
        await estate.kube.create(
            {**body, "metadata": meta, "spec": spec}, registry_of("InClusterIPPool")
        )
        await apply_cluster(estate, controlPlaneEndpoint=None, controlPlaneEndpointPool=pool)
        await apply_machine(estate, "m")
        await estate.until("m", ready)
        ground = await estate.kube.get(ProxmoxCluster, "c", "default")
        endpoint = ground.spec.control_plane_endpoint
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("10.0.9.1", 6443)

    story(tell)


async def own_claim(estate: Estate, name: str, owner: dict[str, Any] | None) -> None:
    """Owner references follow the objects that ``clusterctl move`` makes anew."""
    refs = None
    if owner is not None:
        meta = owner["metadata"]
        kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        refs = [{**kind, "name": meta["name"], "uid": meta["uid"], "controller": True}]
    change = {"metadata": {"ownerReferences": refs}}
    await estate.kube.merge(IPAddressClaim, name, change, "default")


def test_pain_16_a_move_loses_status_and_uid_but_not_the_guest() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m")
        before = await estate.until("m", ready)
        resource = registry_of("ProxmoxMachine")
        old: dict[str, Any] = await estate.kube.get(resource, "m", "default")
        (claim,) = (await estate.kube.list(IPAddressClaim)).items
        await own_claim(estate, claim.name, None)
        pause = {"cluster.x-k8s.io/paused": "true"}
        change = {"metadata": {"annotations": pause, "finalizers": None}}
        await estate.kube.merge(resource, "m", change, "default")
        await estate.kube.delete(resource, "m", "default")
        kept = {k: old["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
        moved = {"apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": kept}
        new = await estate.kube.create({**moved, "spec": old["spec"]}, resource)
        await own_claim(estate, claim.name, new)
        after = await estate.until("m", ready)
        assert after.uid != before.uid
        assert only_guest(estate).vmid == before.spec.virtual_machine_id
        assert after.status.addresses == before.status.addresses
        await estate.delete("m")
        await estate.until_gone("m")
        assert estate.guests("north") == {}

    story(tell)


def test_pain_17_devices_of_the_host_and_the_kind_of_cpu() -> None:
    pci = [{"mapping": "gpu", "pcie": True}]

    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(
            estate, "m", templateID=9000, cpuType="host", machineType="q35", pciDevices=pci
        )
        await estate.until("m", lambda m: m.spec.claim is not None)
        await asyncio.sleep(30)
        conf = only_guest(estate).conf
        assert conf["hostpci0"] == "mapping=gpu,pcie=1"
        assert (conf["cpu"], conf["machine"]) == ("host", "q35")

    story(tell)


def test_pain_18_migrations_are_followed() -> None:
    async def tell(estate: Estate) -> None:
        zones = [{"zone": "a", "nodes": ["pve1"]}, {"zone": "b", "nodes": ["pve2", "pve3"]}]
        await apply_cluster(estate, zoneConfig=zones)
        await apply_machine(estate, "m", failure_domain="a")
        machine = await estate.until("m", ready)
        vmid = machine.spec.virtual_machine_id
        estate.mischief("north", "move-guest", vmid=vmid, node="pve2")
        moved = await estate.until("m", lambda m: m.status.proxmox_node == "pve2")
        assert moved.status.failure_domain == "b"
        assert is_true(moved, "Ready")

    story(tell)


def test_pain_19_the_template_follows_from_the_kubernetes_version() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", version="v1.34.1", numCores=1)
        machine = await estate.until("m", ready)
        assert machine.spec.claim is not None
        assert machine.spec.claim.template == 9000

    story(tell)


def test_pain_20_replicas_are_kept_apart_and_processors_count() -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate, schedulerHints={"cpuAdjustment": 100})
        for n in range(4):
            await apply_machine(estate, f"m{n}", templateID=9000, numCores=2, spread="Require")
        await asyncio.sleep(180)
        found = (await estate.kube.list(ProxmoxMachine)).items
        placed = [m for m in found if ready(m)]
        (left,) = [m for m in found if not ready(m)]
        assert {m.status.proxmox_node for m in placed} == {"pve1", "pve2", "pve3"}
        assert "already holds 1 of these replicas, and they must be on different hosts" in message(left)
        await apply_machine(estate, "big", templateID=9000, numCores=31)
        big = await estate.until("big", lambda m: reason(m) == "InsufficientResources")
        assert "needs 31 CPUs, 30 are free" in message(big)

    story(tell)
