"""
IPAM kinds of Cluster API: IPAddressClaim, IPAddress and the pools of the in-cluster provider.

A claim refers to a pool of any kind; the pool's provider creates an IPAddress and sets its name in
the claim's status. Claim and IPAddress have the same fields in three versions; v1beta2 is the hub.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from moxwell.api.capi.convert import CONDITION_MOVES
from moxwell.api.conditions import Condition, LegacyCondition
from moxwell.api.conversion import KindConversion, Spoke
from moxwell.api.conversion_tables import ConversionTable
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import Value

GROUP = "ipam.cluster.x-k8s.io"
AGE = Column("Age", ".metadata.creationTimestamp", "date")
CONTRACT = {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}


class IPPoolReference(Value, frozen=True, kw_only=True):
    """A reference to a pool of any kind."""

    api_group: str = field(name="apiGroup", default="")
    kind: str
    name: str


class NameRef(Value, frozen=True, kw_only=True):
    name: str = ""


class IPAddressClaimSpec(Value, frozen=True, kw_only=True):
    """The desired state of an IPAddressClaim."""

    cluster_name: str = field(name="clusterName", default="")
    pool_ref: IPPoolReference = field(name="poolRef")


class IPAddressClaimStatus(Value, frozen=True, kw_only=True):
    """The observed state of an IPAddressClaim."""

    address_ref: NameRef = field(name="addressRef", default_factory=NameRef)
    conditions: tuple[Condition, ...] = ()


class IPAddressClaimStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of an IPAddressClaim, in v1beta1."""

    address_ref: NameRef = field(name="addressRef", default_factory=NameRef)
    conditions: tuple[LegacyCondition, ...] = ()


CLAIM: dict[str, Any] = {
    "group": GROUP,
    "plural": "ipaddressclaims",
    "name": "IPAddressClaim",
    "categories": ("cluster-api",),
    "labels": CONTRACT,
    "status": True,
    "open": True,
    "columns": (
        Column("Pool Name", ".spec.poolRef.name"),
        Column("Pool Kind", ".spec.poolRef.kind"),
        Column("Address", ".status.addressRef.name"),
        AGE,
    ),
}


@kind(version="v1beta2", **CLAIM)
class IPAddressClaim(Object, frozen=True, kw_only=True):
    """A claim on one address of a pool."""

    spec: IPAddressClaimSpec
    status: IPAddressClaimStatus = field(default_factory=IPAddressClaimStatus)


@kind(version="v1beta1", storage=False, **CLAIM)
class IPAddressClaimV1Beta1(Object, frozen=True, kw_only=True):
    """A claim on one address of a pool."""

    spec: IPAddressClaimSpec
    status: IPAddressClaimStatusV1Beta1 = field(default_factory=IPAddressClaimStatusV1Beta1)


@kind(version="v1alpha1", storage=False, deprecated="use v1beta2", **CLAIM)
class IPAddressClaimV1Alpha1(Object, frozen=True, kw_only=True):
    """A claim on one address of a pool."""

    spec: IPAddressClaimSpec
    status: IPAddressClaimStatusV1Beta1 = field(default_factory=IPAddressClaimStatusV1Beta1)


class IPAddressSpec(Value, frozen=True, kw_only=True):
    """An address that is allocated to a claim."""

    claim_ref: NameRef = field(name="claimRef")
    pool_ref: IPPoolReference = field(name="poolRef")
    address: str
    prefix: Annotated[int, Meta(ge=0, le=128)] | None = None
    gateway: str = ""


ADDRESS: dict[str, Any] = {
    "group": GROUP,
    "plural": "ipaddresses",
    "name": "IPAddress",
    "categories": ("cluster-api",),
    "labels": CONTRACT,
    "open": True,
    "columns": (
        Column("Address", ".spec.address"),
        Column("Pool Name", ".spec.poolRef.name"),
        Column("Pool Kind", ".spec.poolRef.kind"),
        AGE,
    ),
}


@kind(version="v1beta2", **ADDRESS)
class IPAddress(Object, frozen=True, kw_only=True):
    """An address allocated from a pool."""

    spec: IPAddressSpec


@kind(version="v1beta1", storage=False, **ADDRESS)
class IPAddressV1Beta1(Object, frozen=True, kw_only=True):
    """An address allocated from a pool."""

    spec: IPAddressSpec


@kind(version="v1alpha1", storage=False, deprecated="use v1beta2", **ADDRESS)
class IPAddressV1Alpha1(Object, frozen=True, kw_only=True):
    """An address allocated from a pool."""

    spec: IPAddressSpec


class PoolSpec(Value, frozen=True, kw_only=True):
    """The addresses of a pool: single addresses, ranges ``a-b`` and CIDRs."""

    addresses: Annotated[tuple[str, ...], Meta(min_length=1)]
    prefix: Annotated[int, Meta(ge=0, le=128)]
    gateway: str = ""
    allocate_reserved_ip_addresses: bool = field(name="allocateReservedIPAddresses", default=False)
    excluded_addresses: tuple[str, ...] = field(name="excludedAddresses", default=())
    address_reuse_grace_period_seconds: int | None = field(
        name="addressReuseGracePeriodSeconds", default=None
    )


class PoolCount(Value, frozen=True, kw_only=True):
    """Counts of a pool's addresses."""

    total: int = 0
    used: int = 0
    free: int = 0
    out_of_range: int = field(name="outOfRange", default=0)


class PoolStatus(Value, frozen=True, kw_only=True):
    """The observed state of a pool."""

    ip_addresses: PoolCount | None = field(name="ipAddresses", default=None)


POOL: dict[str, Any] = {
    "group": GROUP,
    "version": "v1alpha2",
    "categories": ("cluster-api",),
    "status": True,
    "open": True,
    "columns": (
        Column("Addresses", ".spec.addresses"),
        Column("Total", ".status.ipAddresses.total", "integer"),
        Column("Free", ".status.ipAddresses.free", "integer"),
        Column("Used", ".status.ipAddresses.used", "integer"),
    ),
}


@kind(plural="inclusterippools", **POOL)
class InClusterIPPool(Object, frozen=True, kw_only=True):
    """A pool of addresses for claims in its own namespace."""

    spec: PoolSpec
    status: PoolStatus = field(default_factory=PoolStatus)


@kind(plural="globalinclusterippools", scope="Cluster", **POOL)
class GlobalInClusterIPPool(Object, frozen=True, kw_only=True):
    """A pool of addresses for claims in all namespaces."""

    spec: PoolSpec
    status: PoolStatus = field(default_factory=PoolStatus)


_TABLE = ConversionTable(CONDITION_MOVES)
_SPOKES = tuple(
    Spoke(version=version, to_hub=_TABLE.to_hub, from_hub=_TABLE.from_hub)
    for version in ("v1beta1", "v1alpha1")
)
CONVERSIONS: tuple[KindConversion, ...] = tuple(
    KindConversion(group=GROUP, kind=kind, hub="v1beta2", spokes=_SPOKES)
    for kind in ("IPAddressClaim", "IPAddress")
)
KINDS: tuple[type[Object], ...] = (
    IPAddressClaim,
    IPAddressClaimV1Beta1,
    IPAddressClaimV1Alpha1,
    IPAddress,
    IPAddressV1Beta1,
    IPAddressV1Alpha1,
    InClusterIPPool,
    GlobalInClusterIPPool,
)
