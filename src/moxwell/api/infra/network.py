"""
Network configuration of machines, in v1alpha2 and later versions.

``networkDevices`` are keyed by Proxmox's device name. A device without pools uses the cluster's
default pools; ``dhcp4`` and ``dhcp6`` select DHCP for that device. A pool can be of any kind whose
provider fulfils IPAddressClaims.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from moxwell.api.kinds import ValidationRule
from moxwell.api.meta import Value
from moxwell.api.schema import keyed

Mtu = Annotated[int, Meta(ge=1, le=65520)]
Vlan = Annotated[int, Meta(ge=1, le=4094)]
Metric = Annotated[int, Meta(ge=0)]
ZoneName = Annotated[
    str, Meta(pattern=r"^[a-z0-9A-Z](?:[a-z0-9A-Z-_.]{0,61}[a-z0-9A-Z])?$", max_length=63)
]
Model = Literal["e1000", "e1000e", "virtio", "rtl8139", "vmxnet3"]


class IPConfig(Value, frozen=True, kw_only=True):
    """Addresses of one IP family from which the controller creates a pool."""

    addresses: Annotated[tuple[str, ...], Meta(min_length=1)] = ()
    prefix: Annotated[int, Meta(ge=1, le=128)]
    gateway: str = ""
    metric: Metric | None = None


class PoolRef(Value, frozen=True, kw_only=True):
    """A reference to a pool of any kind whose provider fulfils IPAddressClaims."""

    api_group: str = field(name="apiGroup", default="ipam.cluster.x-k8s.io")
    kind: str = "InClusterIPPool"
    name: Annotated[str, Meta(min_length=1)]


class RouteSpec(Value, frozen=True, kw_only=True):
    """A static route."""

    to: str = ""
    via: str = ""
    metric: Metric | None = None
    table: Annotated[int, Meta(ge=0)] | None = None
    is6: bool | None = None


class PolicySpec(Value, frozen=True, kw_only=True):
    """A routing policy rule."""

    to: str = ""
    from_: str = field(name="from", default="")
    table: Annotated[int, Meta(ge=0)] | None = None
    priority: Annotated[int, Meta(ge=0)] | None = None
    is6: bool | None = None


class VrfSpec(Value, frozen=True, kw_only=True):
    """A VRF and the devices it contains."""

    name: Annotated[str, Meta(min_length=3)]
    table: Annotated[int, Meta(ge=1)]
    interfaces: tuple[str, ...] = ()
    routes: tuple[RouteSpec, ...] = ()
    routing_policy: tuple[PolicySpec, ...] = field(name="routingPolicy", default=())

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!(self.table in [254, 255])",
            "tables 254 and 255 are reserved for the kernel",
            lambda self, old: self.table not in (254, 255),
            ".table",
        ),
    )


class NetworkDevice(Value, frozen=True, kw_only=True):
    """A network device."""

    name: Annotated[str, Meta(pattern=r"^net[0-9]+$")] = "net0"
    bridge: Annotated[str, Meta(min_length=1)] | None = None
    model: Model | None = None
    mtu: Mtu | None = None
    link_mtu: Mtu | None = field(name="linkMtu", default=None)
    vlan: Vlan | None = None
    queues: Annotated[int, Meta(ge=1, le=65535)] | None = None
    firewall: bool | None = None
    mac_address: str | None = field(name="macAddress", default=None)
    default_ipv4: bool | None = field(name="defaultIPv4", default=None)
    default_ipv6: bool | None = field(name="defaultIPv6", default=None)
    dhcp4: bool | None = None
    dhcp6: bool | None = None
    ip_pool_ref: tuple[PoolRef, ...] = field(name="ipPoolRef", default=())
    dns_servers: tuple[str, ...] = field(name="dnsServers", default=())
    search_domains: tuple[str, ...] = field(name="searchDomains", default=())
    routes: tuple[RouteSpec, ...] = ()
    routing_policy: tuple[PolicySpec, ...] = field(name="routingPolicy", default=())

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!has(self.mtu) || self.mtu == 1 || self.mtu >= 576",
            "mtu must be 1 (inherit from the bridge) or between 576 and 65520",
            lambda self, old: self.mtu is None or self.mtu == 1 or self.mtu >= 576,
            ".mtu",
        ),
        ValidationRule(
            "!has(self.linkMtu) || self.linkMtu == 1 || self.linkMtu >= 576",
            "linkMtu must be 1 or between 576 and 65520",
            lambda self, old: self.link_mtu is None or self.link_mtu == 1 or self.link_mtu >= 576,
            ".linkMtu",
        ),
    )


class NetworkSpec(Value, frozen=True, kw_only=True):
    """The network devices of a machine and the zone whose pools they use."""

    zone: ZoneName | None = None
    network_devices: Annotated[tuple[NetworkDevice, ...], keyed("name")] = field(
        name="networkDevices", default=()
    )
    vrfs: Annotated[tuple[VrfSpec, ...], keyed("name")] = ()
