"""
Quotas of tenants: amounts of vCPUs, memory, storage, nodes and clusters, and their limits. Pure.

The namespace of a tenant carries its limits as an annotation. A nested tenant has a namespace that
begins with the name of its parent's, so what it uses counts for every tenant above it too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

from moxwell.api.field_errors import FieldError, hint, listing
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.quantity import NANO, InvalidQuantity, Quantity, QuantityFormat
from moxwell.errors import Invalid
from moxwell.scheduling.inventory_model import GIB, MIB

QUOTA = "moxwell.dev/quota"  # annotation of a tenant's namespace: limits as a JSON object
PREFIX = "tenant-"
DEFAULT_MEMORY_MIB = 512  # of a Proxmox guest
NAMES = ("cpu", "memory", "storage", "nodes", "clusters")
_REQUESTS = {f"requests.{name}": name for name in ("cpu", "memory", "storage")}
# Resources that a ResourceQuota of Kubernetes limits; the rest of a name is checked by prefix.
_KUBERNETES = (
    "pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
    "replicationcontrollers", "services.loadbalancers", "services.nodeports", "ephemeral-storage",
    "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
)  # fmt: skip
_PREFIXES = ("count/", "requests.", "hugepages-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Amounts of everything that a quota limits."""

    cpu: int = 0  # vCPUs
    memory: int = 0  # bytes
    storage: int = 0  # bytes
    nodes: int = 0
    clusters: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return _amounts(a + b for a, b in zip(astuple(self), astuple(other), strict=True))

    def __mul__(self, count: int) -> "Amounts":
        return _amounts(a * count for a in astuple(self))

    def at_least(self, other: "Amounts") -> "Amounts":
        """The larger of each amount."""
        return _amounts(max(a, b) for a, b in zip(astuple(self), astuple(other), strict=True))


def _amounts(values: Iterable[int]) -> Amounts:
    return Amounts(**dict(zip(NAMES, values, strict=True)))


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    found = Amounts()
    for each in amounts:
        found = found + each
    return found


def machine(cpus: int, memory_mib: int, disk_gib: int) -> Amounts:
    """What one machine uses."""
    return Amounts(cpu=cpus, memory=memory_mib * MIB, storage=disk_gib * GIB, nodes=1)


Limits = Mapping[str, Quantity]  # by one of NAMES; what is missing has no limit


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that a request would exceed."""

    namespace: str  # of the tenant whose limit it is
    name: str
    asked: int
    used: int
    limit: Quantity

    def __str__(self) -> str:
        return (
            f"{self.name}: {_text(self.name, self.asked)} asked, "
            f"{_text(self.name, self.used)} used by others, limit {self.limit}"
        )


def _text(name: str, value: int) -> str:
    if name not in ("memory", "storage"):
        return str(value)
    return str(Quantity(value * NANO, QuantityFormat.BINARY))


def excesses(
    namespace: str, limits: Limits, *, asked: Amounts, used: Amounts, before: Amounts = Amounts()
) -> tuple[Excess, ...]:
    """
    The limits that ``asked`` exceeds together with what others use.

    A request that asks no more than ``before`` is never refused: a limit may be lowered below what
    runs, and then everything that reduces it must be possible.
    """
    found = []
    for field in fields(Amounts):
        name, limit = field.name, limits.get(field.name)
        wants, others = getattr(asked, name), getattr(used, name)
        if limit is None or wants <= getattr(before, name):
            continue
        if Quantity.of(wants + others) > limit:
            found.append(Excess(namespace, name, wants, others, limit))
    return tuple(found)


def sentence(found: Iterable[Excess]) -> str:
    """The exceeded limits in one sentence."""
    by_space: dict[str, list[str]] = {}
    for excess in found:
        by_space.setdefault(excess.namespace, []).append(str(excess))
    return "; ".join(
        f"the quota of {space} is exceeded ({', '.join(rows)})" for space, rows in by_space.items()
    )


def usage_of_machines(limits: Limits, used: Amounts) -> list[str]:
    """What machines use of each limit that only machines count for: ``cpu 6 of 16``."""
    return [
        f"{name} {_text(name, getattr(used, name))} of {limits[name]}"
        for name in ("cpu", "memory", "nodes")
        if name in limits
    ]


# Limits of a namespace


def tenant_namespaces(namespace: str) -> tuple[str, ...]:
    """The namespace and those of the tenants above it: ``tenant-a-b`` is in ``tenant-a``."""
    if not namespace.startswith(PREFIX):
        return (namespace,)
    parts = namespace.removeprefix(PREFIX).split("-")
    return tuple(PREFIX + "-".join(parts[:count]) for count in range(len(parts), 0, -1))


def belongs_to(namespace: str, tenant: str) -> bool:
    """Whether a namespace is that of a tenant, or of a tenant below it."""
    return tenant in tenant_namespaces(namespace)


def limits_of(resource_quotas: Mapping[str, Any]) -> Limits:
    """The limits of ``resourceQuotas`` that count machines; ``requests.cpu`` is ``cpu``."""
    named = {_REQUESTS.get(name, name): value for name, value in resource_quotas.items()}
    return {name: Quantity.parse(named[name]) for name in NAMES if name in named}


def as_annotation(limits: Limits) -> str:
    """The text of the annotation ``QUOTA``."""
    return json.dumps({name: str(value) for name, value in limits.items()}, sort_keys=True)


def read_annotation(metadata: Mapping[str, Any]) -> Limits:
    """The limits in the metadata of a namespace; none without the annotation."""
    text = (metadata.get("annotations") or {}).get(QUOTA, "")
    try:
        return limits_of(json.loads(text)) if text else {}
    except (ValueError, AttributeError) as error:
        raise Invalid(
            f"annotation {QUOTA} of namespace {metadata.get('name')} is broken"
        ) from error


def quota_errors(path: str, resource_quotas: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Names that nothing would limit, and values that are no quantities."""
    found = []
    known = (*NAMES, *_KUBERNETES)
    for name, value in resource_quotas.items():
        at = f"{path}[{name}]"
        storage_class = ".storageclass.storage.k8s.io/" in name
        if name not in known and not name.startswith(_PREFIXES) and not storage_class:
            text = f"nothing is limited by this name{hint(name, known)}; known: {listing(NAMES)}"
            found.append(FieldError(at, f"{text}, and the names of a ResourceQuota"))
        try:
            if Quantity.parse(value).nano < 0:
                found.append(FieldError(at, f"{value} is negative"))
        except InvalidQuantity as error:
            found.append(FieldError(at, str(error)))
    return tuple(found)


# Machines


def machine_amounts(spec: ProxmoxMachineSpec) -> Amounts:
    """What a machine uses; a size that its template decides counts with Proxmox's default."""
    boot = spec.disks.boot_volume.size_gb if spec.disks and spec.disks.boot_volume else 0
    extra = sum(disk.size_gb for disk in spec.disks.extra) if spec.disks else 0
    cpus = (spec.num_cores or 1) * (spec.num_sockets or 1)
    return machine(cpus, spec.memory_mib or DEFAULT_MEMORY_MIB, boot + extra)
