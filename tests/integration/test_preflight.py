"""Each check of a region fails on a Proxmox that has the fault, and its advice mends it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.errors import Unreachable
from moxwell.lab.proxmox.fault_injection import Fault as InjectedFault
from moxwell.lab.proxmox.state import SimAcl, SimToken, SimUser
from moxwell.preflight import probe
from moxwell.preflight.addresses import AddressPlan, check_addresses
from moxwell.preflight.checks import check_region
from moxwell.preflight.facts import RegionFacts, read_facts
from moxwell.preflight.outcome import (
    CheckLevel,
    NetworkNeed,
    RegionCheck,
    RegionNeeds,
    could_make_cluster,
)
from moxwell.pve import preflight
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.endpoints.ha import HaStatusRow
from moxwell.pve.errors import CredentialsRefused, PermissionDenied
from moxwell.pve.values import SecretValue
from moxwell.scheduling.templates import TemplateQuery
from moxwell.testing.loop import run_virtual
from moxwell.testing.pve import SimTransport
from moxwell.testing.small_region import FEATURES, SimStage

CONFIG = RegionConfig(
    region="r1",
    urls=("https://pve1:8006", "https://pve2:8006"),
    auth=TokenAuth("moxwell@pve!test", SecretValue("s")),
    fingerprint="0" * 64,
)
NEEDS = RegionNeeds(tuple(f for f in FEATURES if f != "ha"), vmids=range(10000, 10200))
ADMIN = "root@pam!admin=6d6f7877-656c-4c00-8000-000000000001"


async def checks(
    stage: SimStage, config: RegionConfig = CONFIG, needs: RegionNeeds = NEEDS
) -> tuple[RegionCheck, ...]:
    return check_region(await read_facts(stage.pve, config, stage.clock), needs)


def kinds(found: tuple[RegionCheck, ...]) -> set[tuple[str, str]]:
    return {(c.name, str(c.level)) for c in found if c.level is not CheckLevel.PASS}


def healthy(version: str = "9.2.11") -> SimStage:
    stage = SimStage(version)
    template = stage.engine.runtimes["r1"].region.guests[9000]
    template.conf["tags"] = "k8s-v1.36.3"
    return stage


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_a_region_where_machines_can_be_made_passes(version: str) -> None:
    found = await checks(healthy(version))
    assert kinds(found) == set(), found
    assert could_make_cluster(found)
    assert {c.name for c in found} >= {
        "reachability", "tls", "version", "privileges", "quorum", "clock", "network", "capacity"
    }  # fmt: skip


def _restrict(stage: SimStage, *without: str) -> None:
    """Leave the token the documented role on the documented paths only."""
    region = stage.engine.runtimes["r1"].region
    needs = preflight.needs(region.major)
    paths = {need.path for need in needs}
    region.access.acl[:] = [row for row in region.access.acl if row.path in paths]
    region.access.roles["Moxwell"] = sorted({n.privilege for n in needs} - set(without))


async def restricted_checks(stage: SimStage) -> tuple[RegionCheck, ...]:
    return check_region(await read_facts(stage.pve, CONFIG, stage.clock), RegionNeeds())


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_the_documented_role_is_sufficient_for_the_checks(version: str) -> None:
    stage = healthy(version)
    _restrict(stage)
    with pytest.raises(PermissionDenied, match=r"Sys\.Audit"):
        await stage.pve.cluster.status()
    found = await restricted_checks(stage)
    assert kinds(found) == set(), found
    assert "2 hosts answer" in {c.what for c in found}


async def test_a_region_that_the_token_may_not_read_names_the_privilege() -> None:
    stage = healthy()
    _restrict(stage, "Sys.Audit")
    found = await restricted_checks(stage)
    assert kinds(found) == {("privileges", "fail")}
    assert "the token lacks Sys.Audit on /nodes" in {c.what for c in found}


async def admin(stage: SimStage, method: str, path: str, **params: str | int) -> None:
    """A request of the administrator who follows an advice."""
    users = stage.region.access.users
    root = users.setdefault("root@pam", SimUser("root@pam"))
    root.tokens["admin"] = SimToken("admin", ADMIN.partition("=")[2], privsep=0)
    await SimTransport(stage.engine, "r1", token=ADMIN).request(method, path, params)
    await stage.clock.sleep(10)


@dataclass(frozen=True)
class Fault:
    """A fault, the check that finds it, and the advice as the administrator follows it."""

    name: str
    make: Callable[[SimStage], object]
    found: tuple[str, str]
    mend: Callable[[SimStage], Awaitable[object]]
    needs: RegionNeeds = NEEDS


def config(**values: str) -> Callable[[SimStage], object]:
    return lambda stage: stage.conf(9000).update(values)


def qm(**values: str) -> Callable[[SimStage], Awaitable[object]]:
    """The command ``qm set 9000``."""
    return lambda stage: admin(stage, "PUT", "/nodes/pve1/qemu/9000/config", **values)


def content(**types: str) -> Callable[[SimStage], object]:
    def change(stage: SimStage) -> None:
        for name, value in types.items():
            stage.region.storages[name].options["content"] = value

    return change


def pvesm(name: str, **values: str | int) -> Callable[[SimStage], Awaitable[object]]:
    """The command ``pvesm set``."""
    return lambda stage: admin(stage, "PUT", f"/storage/{name}", **values)


def role(stage: SimStage, without: str) -> None:
    stage.region.access.roles["Moxwell"].remove(without)


def pveum(privileges: str) -> Callable[[SimStage], Awaitable[object]]:
    return lambda stage: admin(stage, "PUT", "/access/roles/Moxwell", privs=privileges, append=1)


def no_bridge(stage: SimStage) -> None:
    del stage.region.hosts["pve2"].bridges["vmbr0"]


async def make_bridge(stage: SimStage) -> None:
    form: dict[str, str | int] = {"iface": "vmbr0", "type": "bridge", "autostart": 1}
    await admin(stage, "POST", "/nodes/pve2/network", **form)
    await admin(stage, "PUT", "/nodes/pve2/network")


def bridge_down(stage: SimStage) -> None:
    del stage.region.hosts["pve2"].bridges["vmbr0"]["active"]


async def apply_network(stage: SimStage) -> None:
    await admin(stage, "PUT", "/nodes/pve2/network")


def new_vnet(stage: SimStage) -> None:
    stage.region.access.roles["Moxwell"].append("SDN.Audit")  # of the feature addresses
    stage.region.sdn.zones["tenants"] = {"type": "simple"}
    stage.region.sdn.vnets["red"] = {"type": "vnet", "zone": "tenants"}


def vnet_elsewhere(stage: SimStage) -> None:
    new_vnet(stage)
    stage.region.sdn.zones["tenants"]["nodes"] = "pve1"
    sdn = stage.region.sdn
    sdn.running |= {"zones": dict(sdn.zones), "vnets": dict(sdn.vnets), "subnets": {}}


async def extend_zone(stage: SimStage) -> None:
    await admin(stage, "PUT", "/cluster/sdn/zones/tenants", nodes="pve1,pve2")
    await admin(stage, "PUT", "/cluster/sdn")


def no_vmids(stage: SimStage) -> None:
    for vmid in range(10000, 10200):
        stage.mischief("take-vmid", vmid=vmid, node="pve1")


async def delete_guests(stage: SimStage) -> None:
    for vmid in range(10000, 10150):
        await admin(stage, "DELETE", f"/nodes/pve1/qemu/{vmid}")


async def build_template(stage: SimStage) -> None:
    scsi0, tags = "shared:1", "k8s-1.36.3"
    form: dict[str, str | int] = {"vmid": 9001, "name": "ubuntu", "tags": tags, "scsi0": scsi0}
    form |= {"scsihw": "virtio-scsi-single", "boot": "order=scsi0", "agent": "1"}
    await admin(stage, "POST", "/nodes/pve1/qemu", **form)
    await admin(stage, "POST", "/nodes/pve1/qemu/9001/template")


def local_template(stage: SimStage) -> None:
    stage.conf(9000)["scsi0"] = "local:9000/base-9000-disk-0.qcow2,size=2G"


async def add_to_pool(stage: SimStage) -> None:
    await admin(stage, "PUT", "/pools/team", vms=9000)


def in_pool(stage: SimStage) -> None:
    access = stage.region.access
    access.acl.append(SimAcl("/pool/team", "user", "moxwell@pve", "Moxwell"))


def full(stage: SimStage) -> None:
    stage.mischief("fill-storage", storage="shared", percent=99)


async def free(stage: SimStage) -> None:
    stage.mischief("free-storage", storage="shared")


def host_down(stage: SimStage) -> None:
    stage.mischief("host-down", node="pve2")


async def host_up(stage: SimStage) -> None:
    stage.mischief("host-up", node="pve2")


def big_guest(stage: SimStage) -> None:
    for host in stage.region.hosts.values():
        host.memory = 1 << 30


async def add_memory(stage: SimStage) -> None:
    for host in stage.region.hosts.values():
        host.memory = 64 << 30


VNET = replace(NEEDS, networks=(NetworkNeed("red"),))
TAGGED = replace(NEEDS, networks=(NetworkNeed("vmbr0", 120),))
POOL = replace(NEEDS, pool="team")
OTHER = replace(NEEDS, templates=(TemplateQuery(kubernetes="v1.35.1"),))
NAMED = replace(NEEDS, storage="local")


async def vlan_aware(stage: SimStage) -> None:
    for host in ("pve1", "pve2"):
        form: dict[str, str | int] = {"type": "bridge", "bridge_vlan_aware": 1}
        await admin(stage, "PUT", f"/nodes/{host}/network/vmbr0", **form)


FAULTS = [
    Fault("privilege", lambda s: role(s, "VM.Clone"), ("privileges", "fail"), pveum("VM.Clone")),
    Fault("no storage for disks", content(local="iso", shared="iso"), ("storage", "fail"),
          pvesm("shared", content="images,iso")),
    Fault("no storage for ISOs", content(local="images", shared="images"), ("storage", "fail"),
          pvesm("shared", content="images,iso")),
    Fault("named storage", content(local="iso"), ("storage", "fail"),
          pvesm("local", content="images,iso"), NAMED),
    Fault("full storage", full, ("storage", "warn"), free),
    Fault("no bridge", no_bridge, ("network", "fail"), make_bridge),
    Fault("a bridge that is not applied", bridge_down, ("network", "fail"), apply_network),
    Fault("vlan", lambda s: None, ("network", "warn"), vlan_aware, TAGGED),
    Fault("vnet not applied", new_vnet, ("network", "fail"),
          lambda s: admin(s, "PUT", "/cluster/sdn"), VNET),
    Fault("vnet elsewhere", vnet_elsewhere, ("network", "fail"), extend_zone, VNET),
    Fault("no template", lambda s: s.region.guests.pop(9000), ("templates", "fail"),
          build_template),
    Fault("other version", lambda s: None, ("templates", "fail"),
          qm(tags="k8s-v1.35.1"), OTHER),
    Fault("no agent", config(agent="0"), ("templates", "warn"), qm(agent="enabled=1")),
    Fault("no version", config(tags="other"), ("templates", "warn"), qm(tags="k8s-1.36.3")),
    Fault("controller", config(scsihw="lsi"), ("templates", "warn"),
          qm(scsihw="virtio-scsi-single")),
    Fault("no boot disk", config(boot="order=scsi3"), ("templates", "fail"),
          qm(boot="order=scsi0")),
    Fault("local template", local_template, ("templates", "warn"),
          lambda s: admin(s, "PUT", "/storage/local", shared=1)),
    Fault("outside the pool", in_pool, ("templates", "fail"), add_to_pool, POOL),
    Fault("no VMIDs", no_vmids, ("vmids", "fail"), delete_guests),
    Fault("no memory", big_guest, ("capacity", "fail"), add_memory),
    Fault("host down", host_down, ("quorum", "fail"), host_up),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_is_found_and_its_advice_mends_it(fault: Fault) -> None:
    async def story() -> None:
        stage = healthy()
        fault.make(stage)
        found = await checks(stage, needs=fault.needs)
        assert fault.found in kinds(found), found
        assert {name for name, _ in kinds(found)} <= {fault.found[0], "hosts"}
        assert all(c.do for c in found if c.level is not CheckLevel.PASS)
        await fault.mend(stage)
        mended = await checks(stage, needs=fault.needs)
        assert fault.found[0] not in {name for name, _ in kinds(mended)}, mended
        await stage.close()

    run_virtual(story())


async def test_a_silent_region_is_one_failure() -> None:
    stage = healthy()
    stage.engine.faults["r1"].add(InjectedFault("status", status=596))
    found = await checks(stage)
    assert [c.name for c in found] == ["reachability"]
    assert not could_make_cluster(found)


PURE: list[tuple[dict[str, object], tuple[str, str]]] = [
    ({"insecure": True}, ("tls", "warn")),
    ({"urls": ("https://pve1:8006",), "hosts": {"a": True, "b": True}}, ("urls", "warn")),
    ({"user": "root@pam!x"}, ("user", "warn")),
    ({"major": 7, "version": "7.4"}, ("version", "fail")),
    ({"major": 10, "version": "10.0"}, ("version", "warn")),
    ({"quorate": False}, ("quorum", "fail")),
    ({"hosts": {"a": True, "b": False}}, ("hosts", "warn")),
    ({"skews": {"a": -7200.0}}, ("clock", "fail")),
    ({"skews": {"a": 20.0}}, ("clock", "warn")),
    ({"vmids": frozenset(range(10000, 10190))}, ("vmids", "warn")),
    ({"latency": 4.0}, ("latency", "warn")),
    ({"silent_urls": ("https://pve2:8006",)}, ("urls", "warn")),
    ({"permissions": {}}, ("privileges", "fail")),
    ({"free": {"a": (64, 1 << 30)}}, ("capacity", "fail")),
    ({"error": Unreachable("no route")}, ("reachability", "fail")),
    ({"error": CredentialsRefused("401")}, ("login", "fail")),
    ({"error": PermissionDenied("403")}, ("privileges", "fail")),
]


@pytest.mark.parametrize(("changes", "expected"), PURE, ids=[str(p[1]) for p in PURE])
async def test_facts_that_fail(changes: dict[str, object], expected: tuple[str, str]) -> None:
    good = await read_facts(healthy().pve, CONFIG, healthy().clock)
    facts: RegionFacts = replace(good, **changes)  # type: ignore[arg-type]
    assert expected in kinds(check_region(facts, NEEDS))
    assert kinds(check_region(good, NEEDS)) == set()


HA: list[tuple[dict[str, object], str]] = [
    ({"ha": (HaStatusRow(id="quorum", type="quorum", status="No quorum!"),)}, "fail"),
    ({"ha": (HaStatusRow(id="quorum", type="quorum", status="OK"),)}, "warn"),  # two hosts
    ({"hosts": {"a": True, "b": True, "c": True}}, "pass"),
]


@pytest.mark.parametrize(("changes", "level"), HA)
async def test_high_availability_needs_a_quorum_and_three_hosts(
    changes: dict[str, object], level: str
) -> None:
    good = await read_facts(healthy().pve, CONFIG, healthy().clock)
    facts: RegionFacts = replace(good, **changes)  # type: ignore[arg-type]
    found = [c.level for c in check_region(facts, RegionNeeds(FEATURES)) if c.name == "ha"]
    assert found == [level]


PLANS = [AddressPlan("a", ("10.0.0.10-10.0.0.20",), 24, "10.0.0.1")]
ADDRESSES: list[tuple[list[AddressPlan], dict[str, str], dict[str, tuple[str, ...]], str]] = [
    (PLANS, {}, {}, ""),
    ([AddressPlan("a", ("10.0.1.10-10.0.1.20",), 24, "10.0.0.1")], {}, {}, "is not inside"),
    ([AddressPlan("a", ("10.0.0.250-10.0.1.5",), 24)], {}, {}, "is not inside"),
    ([AddressPlan("a", ("fd00::1-fd00::9",), 64, "10.0.0.1")], {}, {}, "is not a network"),
    ([AddressPlan("a", ("10.0.0.x",))], {}, {}, "is not an address"),
    ([*PLANS, AddressPlan("b", ("10.0.0.20-10.0.0.30",))], {}, {}, "a and b overlap"),
    ([*PLANS, AddressPlan("b", ("10.0.0.21-10.0.0.30",))], {}, {}, ""),
    (PLANS, {"the control plane": "10.0.0.15"}, {}, "overlap with the control plane"),
    (PLANS, {"pods": "10.0.0.0/16"}, {}, "overlap with pods"),
    (PLANS, {}, {"a": ("10.0.0.12",)}, "answer already: 10.0.0.12"),
]


@pytest.mark.parametrize(("plans", "reserved", "answering", "expected"), ADDRESSES)
def test_address_ranges(
    plans: list[AddressPlan],
    reserved: dict[str, str],
    answering: dict[str, tuple[str, ...]],
    expected: str,
) -> None:
    found = check_addresses(plans, reserved, answering)
    texts = [c.what for c in found if c.level is CheckLevel.FAIL]
    assert (len(texts) == 1 and expected in texts[0]) if expected else not texts
    assert all(c.do for c in found if c.level is CheckLevel.FAIL)


async def test_addresses_that_answer_are_found() -> None:
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.2", 0)
    port = server.sockets[0].getsockname()[1]
    assert await probe.answers("127.0.0.2", port)

    async def connect(host: str, port: int) -> bool | None:
        """Only the first address answers; loopback addresses all refuse."""
        return await probe.connect(host, port) if host == "127.0.0.2" else None

    ranges = parse_address_ranges(["127.0.0.2-127.0.0.4"])
    accepted = await probe.answering(ranges, frozenset(), (port,), connect)
    server.close()
    await server.wait_closed()
    refused = await probe.answering(ranges, frozenset(), (port,), connect)
    assert accepted == refused == ("127.0.0.2",)  # a refusal is an answer too
    assert await probe.answering(ranges, frozenset({"127.0.0.2"}), (port,), connect) == ()
    assert not await probe.answers("127.0.0.2", port)
