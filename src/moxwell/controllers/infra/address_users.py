"""
Who uses an address: configurations of guests, guest agents, the IPAM of an SDN, Nodes. Pure.

The same address in two networks is no conflict: isolated tenants may choose the same ranges. A
network is a bridge or VNet with a VLAN of one region.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from moxwell.pve import property_strings
from moxwell.pve.endpoints.agent import AgentInterface
from moxwell.pve.endpoints.sdn import IpamEntry
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest

# On an IPAddressClaim that only keeps an address of another user from being given out.
TAKEN = "moxwell.dev/address-taken"  # label
TAKEN_BY = "moxwell.dev/taken-by"  # annotation: the other user
REGION = "moxwell.dev/region"  # annotation: the region of the network
NETWORK = "moxwell.dev/network"  # annotation: bridge or VNet, and VLAN
NODE = "Node "  # begins the name of a user that is a Node
MAX_REPORTED = 16  # addresses of a guest; what an agent says must not exhaust a pool


@dataclass(frozen=True, slots=True)
class Network:
    """A network inside a region."""

    bridge: str
    vlan: str = ""

    @classmethod
    def of_card(cls, text: str) -> "Network":
        """The network of a network device of a guest."""
        parts = property_strings.parse(text)
        return cls(parts.get("bridge", ""), parts.get("tag", ""))

    @classmethod
    def parse(cls, text: str) -> "Network":
        """The inverse of ``str``."""
        bridge, _, vlan = text.partition(" VLAN ")
        return cls(bridge, vlan)

    def __str__(self) -> str:
        return f"{self.bridge} VLAN {self.vlan}" if self.vlan else self.bridge


@dataclass(frozen=True, slots=True)
class AddressUser:
    """A user of an address; ``network`` is None if every network counts."""

    address: str
    name: str
    network: Network | None = None


def normalized(address: str) -> str:
    """The usual form of an address, without a prefix length; empty if it is none."""
    try:
        return str(ipaddress.ip_interface(address).ip)
    except ValueError:  # dhcp, auto, manual
        return ""


def other_user(address: str, network: Network, users: Iterable[AddressUser]) -> AddressUser | None:
    """The first user of an address in a network."""
    wanted = normalized(address)
    matching = (u for u in users if u.address == wanted and u.network in (None, network))
    return next(matching, None) if wanted else None


def guest_name(guest: ObservedGuest) -> str:
    """How messages name a guest."""
    word = "container" if guest.kind == "lxc" else "guest"
    return f"{word} {guest.vmid} ({guest.name})" if guest.name else f"{word} {guest.vmid}"


def configured(name: str, config: GuestConfig) -> Iterator[AddressUser]:
    """The addresses that cloud-init or the container gets from the configuration."""
    for card, text in config.nics.items():
        settings = config.get(f"ipconfig{card.removeprefix('net')}")
        parts = property_strings.parse(text) | property_strings.parse(settings)
        for key in ("ip", "ip6"):
            if address := normalized(parts.get(key, "")):
                yield AddressUser(address, name, Network.of_card(text))


def reported(
    name: str, config: GuestConfig, interfaces: Iterable[AgentInterface]
) -> Iterator[AddressUser]:
    """The addresses on the network devices of a guest; those of its containers do not count."""
    return islice(_on_cards(name, config, interfaces), MAX_REPORTED)


def _on_cards(
    name: str, config: GuestConfig, interfaces: Iterable[AgentInterface]
) -> Iterator[AddressUser]:
    cards = {config.mac(card): text for card, text in config.nics.items()}
    for interface in interfaces:
        text = cards.get(interface.mac.lower()) if interface.mac else None
        for found in interface.addresses if text is not None else ():
            if address := normalized(found.ip):
                yield AddressUser(address, name, Network.of_card(text or ""))


def leased(entries: Iterable[IpamEntry], own: int) -> Iterator[AddressUser]:
    """The addresses in the IPAM of an SDN, without those of the guest ``own``."""
    for entry in entries:
        if entry.vmid != own and (address := normalized(entry.ip)):
            what = "gateway" if entry.gateway else entry.hostname or entry.mac
            yield AddressUser(address, f"the SDN IPAM ({what})", Network(entry.vnet))
