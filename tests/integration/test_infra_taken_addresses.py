"""No machine gets an address that a guest, agent, SDN IPAM, Node or other claim already has."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.api.kinds import Resource
from moxwell.controllers.infra.address_users import TAKEN, TAKEN_BY
from moxwell.kube.errors import NotFound
from moxwell.lab.proxmox.state import SimGuest
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect
from moxwell.testing.two_regions import (
    TwoRegions,
    is_true,
    program,
    ready,
    running,
    start_two_regions,
)

STRANGER, MAC = 201, "BC:24:11:00:02:01"
CARD = f"virtio={MAC},bridge=vmbr0"
FIRST, SECOND = "10.0.0.10", "10.0.0.11"
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: t}}]
"""


def story(tell: Callable[[TwoRegions], Awaitable[None]], *regions: str) -> None:
    async def main() -> None:
        async with running(*regions or ("north",)) as (env, _):
            await apply_cluster(env)
            await tell(env)

    run_virtual(main())


def stranger(env: TwoRegions, **conf: Any) -> SimGuest:
    guest = env.region("north").guests[STRANGER]
    guest.conf |= {"net0": CARD, **conf}
    guest.live |= {"net0": CARD, **conf}
    return guest


async def by_cloud_init(env: TwoRegions) -> None:
    stranger(env, ipconfig0=f"ip={FIRST}/24,gw=10.0.0.1")


async def by_container(env: TwoRegions) -> None:
    card = f"name=eth0,bridge=vmbr0,hwaddr={MAC},ip={FIRST}/24,type=veth"
    conf: dict[str, str | int | float] = {
        "hostname": "box",
        "cores": 1,
        "memory": 512,
        "net0": card,
    }
    env.region("north").guests[202] = SimGuest(202, "lxc", "pve1", conf)
    await asyncio.sleep(60)  # until it is listed


async def by_agent(env: TwoRegions) -> None:
    stranger(env, agent="1").booted = True
    address = {"ip-address": FIRST, "ip-address-type": "ipv4", "prefix": 24}
    card = {"name": "eth0", "hardware-address": MAC.lower(), "ip-addresses": [address]}
    env.guest_os.cards["precious"] = [card]


async def by_sdn(env: TwoRegions) -> None:
    pve = PveWriter(SwitchableTransport(env.transports["north"]))
    zone = {"zone": "lan", "type": "simple", "ipam": "pve", "dhcp": "dnsmasq"}
    await env.transports["north"].request("POST", "/cluster/sdn/zones", zone)
    await pve.sdn.create_vnet("vmnet", "lan")
    await pve.sdn.create_subnet("vmnet", "10.0.0.0/24", gateway="10.0.0.1")
    await pve.sdn.apply()
    await pve.sdn.reserve("vmnet", zone="lan", ip=FIRST, mac=MAC)
    await asyncio.sleep(5)


async def by_node(env: TwoRegions, count: int = 1) -> None:
    addresses = [{"type": "InternalIP", "address": f"10.0.0.{10 + n}"} for n in range(count)]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "metal"},
        "status": {"addresses": addresses},
    }
    await env.kube.create(node, Node.resource)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "c-kubeconfig", "namespace": "default"},
        "data": {"value": base64.b64encode(KUBECONFIG.encode()).decode()},
    }
    await env.kube.create(secret, SECRETS)


async def by_host(env: TwoRegions) -> None:
    bridge = env.region("north").hosts["pve3"].bridges["vmbr0"]
    bridge |= {"address": FIRST, "cidr": f"{FIRST}/24"}


async def by_another_pool(env: TwoRegions) -> None:
    await apply_cluster(env, "other")
    await apply_machine(env, "theirs", "other")
    await env.until("theirs", ready)


@dataclass(frozen=True)
class Case:
    """Who has the first address of the pool, and how messages name it."""

    prepare: Callable[[TwoRegions], Awaitable[None]]
    user: str
    bridge: str = "vmbr0"


CASES = {
    "cloud-init": Case(by_cloud_init, "guest 201 (precious)"),
    "container": Case(by_container, "container 202"),
    "agent": Case(by_agent, "guest 201 (precious)"),
    "SDN IPAM": Case(by_sdn, f"the SDN IPAM ({MAC})", "vmnet"),
    "Node": Case(by_node, "Node metal"),
    "host": Case(by_host, "host pve3"),
    "another pool": Case(by_another_pool, "claim default/theirs-net0-00-inet"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_address_that_somebody_uses_is_not_given(case: Case) -> None:
    async def tell(env: TwoRegions) -> None:
        await case.prepare(env)
        card = {"name": "net0", "bridge": case.bridge}
        await apply_machine(env, "m", templateID=9000, network={"networkDevices": [card]})
        machine = await env.until("m", ready)
        assert [a.address for a in machine.status.addresses] == ["m", SECOND]
        kept = await env.kube.get(IPAddressClaim, "m-net0-00-inet", "default")
        assert kept.metadata.annotations[TAKEN_BY] == case.user
        assert [o.kind for o in kept.metadata.owner_references] == ["ProxmoxCluster"]
        reserved = await env.kube.get(IPAddress, kept.status.address_ref.name, "default")
        assert reserved.spec.address == FIRST
        events = await env.kube.list(EVENTS, "default")
        (event,) = [e for e in events.items if e["reason"] == "AddressTaken"]
        assert f"address {FIRST} of net0 is used by {case.user}" in (
            event.get("note") or event["message"]
        )
        await env.delete("m")
        await env.until_gone("m")
        claims = [c for c in (await env.kube.list(IPAddressClaim)).items if "m-net0" in c.name]
        assert [c.name for c in claims] == ["m-net0-00-inet"]

    story(tell)


def test_the_address_is_given_again_when_its_user_is_gone() -> None:
    async def tell(env: TwoRegions) -> None:
        await by_cloud_init(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        del env.region("north").guests[STRANGER]
        await asyncio.sleep(1300)
        with pytest.raises(NotFound):
            await env.kube.get(IPAddressClaim, "m-net0-00-inet", "default")
        assert [a.address for a in (await env.machine("m")).status.addresses] == ["m", SECOND]
        await apply_machine(env, "n")
        machine = await env.until("n", ready)
        assert [a.address for a in machine.status.addresses] == ["n", FIRST]

    story(tell)


def test_the_reservation_stays_while_the_address_is_used() -> None:
    async def tell(env: TwoRegions) -> None:
        await by_agent(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        stopped = env.region("north").guests[STRANGER]
        stopped.running = False  # it may start again with the same address
        await asyncio.sleep(2000)
        kept = await env.kube.get(IPAddressClaim, "m-net0-00-inet", "default")
        assert TAKEN in kept.metadata.labels

    story(tell)


def test_the_nodes_of_a_tenant_do_not_exhaust_a_pool() -> None:
    async def tell(env: TwoRegions) -> None:
        await by_node(env, count=100)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        assert [a.address for a in machine.status.addresses] == ["m", "10.0.0.18"]
        await asyncio.sleep(1300)
        claims = (await env.kube.list(IPAddressClaim)).items
        assert len([c for c in claims if TAKEN in c.metadata.labels]) == 8

    story(tell)


def test_the_same_address_in_another_network_is_given() -> None:
    async def tell(env: TwoRegions) -> None:
        stranger(env, net0=f"virtio={MAC},bridge=vmbr0,tag=7", ipconfig0=f"ip={FIRST}/24")
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        assert [a.address for a in machine.status.addresses] == ["m", FIRST]

    story(tell)


def test_taken_addresses_of_both_families_are_passed_over() -> None:
    async def tell(env: TwoRegions) -> None:
        six = {"addresses": ["2001:db8::10-2001:db8::99"], "prefix": 64, "gateway": "2001:db8::1"}
        taken = [f"ip=10.0.0.{n}/24,ip6=2001:db8::{n}/64" for n in (10, 11, 12)]
        cards = {f"net{n}": CARD for n in range(3)}
        stranger(env, **cards, **{f"ipconfig{n}": text for n, text in enumerate(taken)})
        await apply_cluster(env, "dual", ipv6Config=six)
        await apply_machine(env, "m", "dual")
        machine = await env.until("m", ready)
        assert [a.address for a in machine.status.addresses] == ["m", "10.0.0.13", "2001:db8::13"]

    story(tell)


def test_a_lost_claim_does_not_let_a_second_machine_have_the_address() -> None:
    """As after a restore without claims: the agent of the guest still reports the address."""

    async def tell(env: TwoRegions) -> None:
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        guest = env.region("north").guests[machine.spec.virtual_machine_id or 0]
        mac = str(guest.conf["net0"]).partition("=")[2].partition(",")[0]
        address = {"ip-address": FIRST, "ip-address-type": "ipv4", "prefix": 24}
        env.guest_os.cards["m"] = [
            {"name": "eth0", "hardware-address": mac, "ip-addresses": [address]}
        ]
        await env.kube.delete(IPAddressClaim, "m-net0-00-inet", "default")
        await asyncio.sleep(120)  # longer than the pool keeps a released address
        await apply_machine(env, "n")
        second = await env.until("n", ready)
        assert [a.address for a in second.status.addresses] == ["n", SECOND]

    story(tell)


def test_later_launches_send_no_request_for_others() -> None:
    async def tell(env: TwoRegions) -> None:
        await by_agent(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        before = len(env.sent())
        await apply_machine(env, "n")
        await env.until("n", ready)
        later = env.sent()[before:]
        assert not [path for _, path in later if f"/{STRANGER}/" in path or "/sdn/ipams" in path]

    story(tell)


@dataclass
class TakenAddressOfMachine:
    """Create a machine whose first two addresses are those of another guest."""

    async def world(self) -> TwoRegions:
        world = await start_two_regions()
        await apply_cluster(world)
        cards = {"net0": CARD, "net1": CARD}
        stranger(world, **cards, ipconfig0=f"ip={FIRST}/24", ipconfig1=f"ip={SECOND}/24")
        return world

    def program(self, world: TwoRegions, wires: EffectCounter) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: TwoRegions) -> None:
        await apply_machine(world, "m")

    async def check(self, world: TwoRegions) -> None:
        machine: ProxmoxMachine = await world.machine("m")
        assert is_true(machine, "Ready")
        assert [a.address for a in machine.status.addresses] == ["m", "10.0.0.12"]
        claims = (await world.kube.list(IPAddressClaim)).items
        reserved = sorted(c.name for c in claims if TAKEN in c.metadata.labels)
        assert reserved == ["m-net0-00-inet", "m-net0-00-inet-2"]
        assert sorted(c.name for c in claims) == [*reserved, "m-net0-00-inet-3"]
        assert len(world.guests("north")) == 1
        await world.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_after_any_effect(ending: Ending) -> None:
    crash_after_each_effect(TakenAddressOfMachine(), quiet_seconds=130.0, ending=ending)


def test_guests_whose_agents_hang_do_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    async def hang(*request: object) -> dict[str, Any]:
        asked.append(request)
        await asyncio.sleep(3600)
        return {}

    async def tell(env: TwoRegions) -> None:
        guests = env.region("north").guests
        for vmid in range(300, 360):
            conf: dict[str, Any] = {"net0": CARD, "agent": "1", "memory": "16"}
            same = (dict(conf), dict(conf))
            guests[vmid] = replace(stranger(env), vmid=vmid, conf=same[0], live=same[1])
            env.region("north").changed.add(vmid)
        await asyncio.sleep(60)  # until they are listed
        monkeypatch.setattr(env.guest_os, "agent", hang)
        began = asyncio.get_running_loop().time()
        network = {"networkDevices": [{"name": "net0", "bridge": "vmbr0"}]}
        checks = {"skipQemuGuestAgent": True}
        await apply_machine(env, "m", templateID=9000, checks=checks, network=network)
        await env.until("m", lambda m: is_true(m, "Ready"))
        assert len(asked) == 60
        assert asyncio.get_running_loop().time() - began < 60

    story(tell)
