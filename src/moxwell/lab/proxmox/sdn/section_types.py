"""The options of the types of SDN objects."""

from functools import cache

from moxwell.lab.proxmox.section_config import SectionType

VNET = SectionType.of("zone", "tag alias vlanaware isolate-ports")
SUBNET = SectionType.of("vnet", "gateway snat dnszoneprefix dhcp-range dhcp-dns-server")
_NAMES = "nodes mtu dns reversedns dnszone ipam"
_EVPN = (
    "exitnodes exitnodes-local-routing exitnodes-primary advertise-subnets rt-import vxlan-port"
    " disable-arp-nd-suppression bridge-disable-mac-learning mac"
)


@cache
def zone_type(kind: str, major: int) -> SectionType:
    """The options of a zone type."""
    if kind == "vxlan":
        extra = f"{_NAMES} vxlan-port"
        return (
            SectionType.of("", f"{extra} peers fabric")
            if major >= 9
            else SectionType.of("peers", extra)
        )
    return {
        "simple": SectionType.of("", f"{_NAMES} dhcp"),
        "vlan": SectionType.of("bridge", f"{_NAMES} bridge-disable-mac-learning"),
        "qinq": SectionType.of("bridge tag", f"{_NAMES} bridge-disable-mac-learning vlan-protocol"),
        "evpn": SectionType.of("controller vrf-vxlan", f"{_NAMES} {_EVPN}"),
        "faucet": SectionType.of("controller dp-id", f"{_NAMES} bridge"),
    }[kind]


@cache
def controller_type(kind: str, major: int) -> SectionType:
    """The options of a controller type."""
    new = major >= 9
    return {
        "evpn": SectionType.of("asn" if new else "asn peers", "peers fabric" if new else ""),
        "bgp": SectionType.of(
            "node asn peers", "ebgp ebgp-multihop loopback bgp-multipath-as-path-relax"
        ),
        "isis": SectionType.of("isis-domain isis-ifaces isis-net node", "loopback"),
        "faucet": SectionType.of(""),
    }[kind]


@cache
def server_type(kind: str) -> SectionType:
    """The options of an IPAM or DNS server."""
    return {
        "pve": SectionType.of(""),
        "netbox": SectionType.of("url token", "fingerprint"),
        "phpipam": SectionType.of("url token section", "fingerprint"),
        "powerdns": SectionType.of("url key", "ttl reversemaskv6 fingerprint"),
    }[kind]
