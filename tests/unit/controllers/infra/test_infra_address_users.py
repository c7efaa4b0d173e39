"""Which addresses guests, agents and the IPAM of an SDN use, and in which network."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from moxwell.api.ipam import IPAddressClaim, IPAddressClaimSpec, IPPoolReference
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.address_reservation.plan import ObservedReservation, plan
from moxwell.controllers.infra.address_users import (
    MAX_REPORTED,
    AddressUser,
    Network,
    configured,
    leased,
    normalized,
    other_user,
    reported,
)
from moxwell.pve.endpoints.agent import AgentAddress, AgentInterface
from moxwell.pve.endpoints.sdn import IpamEntry
from moxwell.pve.guests import GuestConfig
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Writes

LAN, TAGGED = Network("vmbr0"), Network("vmbr0", "7")
MAC = "BC:24:11:00:00:05"


@pytest.mark.parametrize(
    "config, expected",
    [
        pytest.param({}, [], id="no network device"),
        pytest.param({"net0": f"virtio={MAC},bridge=vmbr0"}, [], id="no configured address"),
        pytest.param(
            {"net0": f"virtio={MAC},bridge=vmbr0", "ipconfig0": "ip=10.0.0.5/24,gw=10.0.0.1"},
            [("10.0.0.5", LAN)],
            id="cloud-init",
        ),
        pytest.param(
            {
                "net1": f"virtio={MAC},bridge=vmbr0,tag=7",
                "ipconfig1": "ip=10.0.0.5/24,ip6=2001:DB8:0::5/64",
            },
            [("10.0.0.5", TAGGED), ("2001:db8::5", TAGGED)],
            id="both families in a VLAN",
        ),
        pytest.param(
            {"net0": f"virtio={MAC},bridge=vmbr0", "ipconfig0": "ip=dhcp,ip6=auto"}, [], id="DHCP"
        ),
        pytest.param({"ipconfig0": "ip=10.0.0.5/24"}, [], id="settings without a device"),
        pytest.param(
            {"net0": f"name=eth0,bridge=vmbr0,hwaddr={MAC},ip=10.0.0.6/24,ip6=manual,type=veth"},
            [("10.0.0.6", LAN)],
            id="container",
        ),
        pytest.param(
            {"net0": f"virtio={MAC},bridge=vmbr0", "ipconfig0": "ip=10.0.0.500/24,,="},
            [],
            id="not an address",
        ),
    ],
)
def test_configured_addresses(
    config: Mapping[str, str], expected: list[tuple[str, Network]]
) -> None:
    found = list(configured("guest 5", GuestConfig(config)))
    assert [(u.address, u.network) for u in found] == expected


def test_an_agent_reports_the_addresses_of_network_devices_only() -> None:
    config = GuestConfig({"net0": f"virtio={MAC},bridge=vmbr0,tag=7"})
    addresses = (AgentAddress(ip="10.0.0.5"), AgentAddress(ip="2001:db8::5"))
    card = AgentInterface(name="eth0", mac=MAC.lower(), addresses=addresses)
    inside = AgentInterface(
        name="docker0", mac="02:42:00:00:00:01", addresses=(AgentAddress(ip="172.17.0.1"),)
    )
    tunnel = AgentInterface(name="tun0", addresses=(AgentAddress(ip="10.8.0.1"),))
    found = list(reported("guest 5", config, (card, inside, tunnel)))
    assert [(u.address, u.network) for u in found] == [
        ("10.0.0.5", TAGGED),
        ("2001:db8::5", TAGGED),
    ]


def test_an_agent_cannot_report_all_addresses_of_a_pool() -> None:
    config = GuestConfig({"net0": f"virtio={MAC},bridge=vmbr0"})
    addresses = tuple(AgentAddress(ip=f"10.0.0.{n}") for n in range(256))
    card = AgentInterface(name="eth0", mac=MAC.lower(), addresses=addresses)
    found = list(reported("guest 5", config, (card, card)))
    assert [u.address for u in found] == [f"10.0.0.{n}" for n in range(MAX_REPORTED)]


def test_the_ipam_of_an_sdn_names_its_users() -> None:
    entries = (
        IpamEntry(ip="10.0.0.1", gateway=True, vnet="lan"),
        IpamEntry(ip="10.0.0.5", mac=MAC, vnet="lan", vmid=101, hostname="own"),
        IpamEntry(ip="10.0.0.6", mac=MAC, vnet="lan", vmid=7, hostname="web"),
        IpamEntry(ip="10.0.0.7", mac=MAC, vnet="lan"),
    )
    assert [(u.address, u.name) for u in leased(entries, own=101)] == [
        ("10.0.0.1", "the SDN IPAM (gateway)"),
        ("10.0.0.6", "the SDN IPAM (web)"),
        ("10.0.0.7", f"the SDN IPAM ({MAC})"),
    ]


USERS = (
    AddressUser("10.0.0.5", "guest 5", LAN),
    AddressUser("10.0.0.5", "guest 6", TAGGED),
    AddressUser("10.0.0.7", "Node metal"),
    AddressUser("2001:db8::5", "guest 5", LAN),
)


@pytest.mark.parametrize(
    "address, network, expected",
    [
        pytest.param("10.0.0.5", LAN, "guest 5", id="same bridge"),
        pytest.param("10.0.0.5", TAGGED, "guest 6", id="same VLAN"),
        pytest.param("10.0.0.5", Network("tenant-a"), "", id="another network"),
        pytest.param("10.0.0.7", Network("tenant-a"), "Node metal", id="a node in any network"),
        pytest.param("10.0.0.8", LAN, "", id="free"),
        pytest.param("2001:0db8:0::0005", LAN, "guest 5", id="another spelling of IPv6"),
        pytest.param("nonsense", LAN, "", id="no address"),
    ],
)
def test_other_user(address: str, network: Network, expected: str) -> None:
    found = other_user(address, network, USERS)
    assert (found.name if found else "") == expected


@pytest.mark.parametrize("network", [LAN, TAGGED, Network("")])
def test_a_network_is_read_back(network: Network) -> None:
    assert Network.parse(str(network)) == network


def test_an_address_of_any_spelling_is_normalized() -> None:
    assert normalized("2001:DB8::0005/64") == "2001:db8::5"
    assert normalized("10.0.0.5") == "10.0.0.5"
    assert normalized("dhcp") == ""


def claim(*, deleting: bool = False) -> IPAddressClaim:
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    meta = ObjectMeta(name="m-net0-00-inet", namespace="n", uid="u", deletion_timestamp=when)
    ref = IPPoolReference(kind="InClusterIPPool", name="p")
    return IPAddressClaim(metadata=meta, spec=IPAddressClaimSpec(pool_ref=ref))


DELETION = Writes((Delete(IPAddressClaim, "m-net0-00-inet", "n", uid="u"),))


@pytest.mark.parametrize(
    "reservation, seen, expected",
    [
        pytest.param(claim(), ObservedReservation("guest 7"), "AddressTaken", id="still used"),
        pytest.param(claim(), ObservedReservation(known=False), "RegionUnreachable", id="unknown"),
        pytest.param(claim(), ObservedReservation(), DELETION, id="free"),
        pytest.param(claim(deleting=True), ObservedReservation(), Done(), id="being deleted"),
    ],
)
def test_a_reservation_ends_when_nobody_uses_the_address(
    reservation: IPAddressClaim, seen: ObservedReservation, expected: object
) -> None:
    move = plan(reservation, seen)
    assert (move.reason if isinstance(move, Wait) else move) == expected
