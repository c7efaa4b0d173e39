"""
Least-privilege role of Moxwell in Proxmox, and the check of a token's permissions against it.

Release 9 splits ``VM.Monitor`` into ``VM.GuestAgent.*``. Deleting an ISO needs
``Datastore.Allocate`` although uploading does not, and HA needs ``Sys.Console`` on ``/``.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct

from moxwell.pve.client import PveReader
from moxwell.pve.tenant_access import TENANT_GROUP, tenant_privileges

ROLE = "Moxwell"
Feature = Literal[
    "machines",
    "machine-moves",
    "machine-addresses",
    "volumes",
    "metadata",
    "templates",
    "snapshots",
    "ha",
    "pools",
    "addresses",
    "volume-copies",
    "volume-moves",
    "volume-replicas",
    "volume-foreign-tasks",
    "tenants",
]
FEATURES: tuple[Feature, ...] = (
    "machines", "machine-moves", "machine-addresses", "volumes", "metadata",
)  # fmt: skip


class Need(Struct, frozen=True):
    """A privilege on a path, and its purpose."""

    path: str
    privilege: str
    purpose: str
    feature: Feature
    majors: tuple[int, ...] = (8, 9)


def _needs(
    feature: Feature, path: str, purpose: str, *privileges: str, majors: tuple[int, ...] = (8, 9)
) -> tuple[Need, ...]:
    return tuple(Need(path, privilege, purpose, feature, majors) for privilege in privileges)


NEEDS: tuple[Need, ...] = (
    *_needs("metadata", "/vms", "see guests", "VM.Audit"),
    *_needs("metadata", "/nodes", "see hosts and tasks", "Sys.Audit"),
    *_needs("metadata", "/vms", "ask the guest agent", "VM.Monitor", majors=(8,)),
    *_needs("metadata", "/vms", "ask the guest agent", "VM.GuestAgent.Audit", majors=(9,)),
    *_needs("machines", "/vms", "see guests", "VM.Audit"),
    *_needs("machines", "/vms", "clone templates", "VM.Clone", "VM.Allocate"),
    *_needs(
        "machines", "/vms", "configure guests",
        "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType",
        "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
    ),
    *_needs(
        "machines", "/vms", "replace the cloud-init drive of a template", "VM.Config.Cloudinit"
    ),
    *_needs("machines", "/vms", "start and stop guests", "VM.PowerMgmt"),
    *_needs("machines", "/vms", "see that a guest is ready", "VM.Monitor", majors=(8,)),
    *_needs(
        "machines", "/vms", "see that a guest is ready", "VM.GuestAgent.FileRead", majors=(9,)
    ),
    *_needs("machine-moves", "/vms", "bring clones of local templates to a host", "VM.Migrate"),
    *_needs("machine-addresses", "/vms", "see addresses of DHCP", "VM.Monitor", majors=(8,)),
    *_needs(
        "machine-addresses", "/vms", "see addresses of DHCP", "VM.GuestAgent.Audit", majors=(9,)
    ),
    *_needs("machines", "/nodes", "see hosts and tasks", "Sys.Audit"),
    *_needs("machines", "/storage", "see free space", "Datastore.Audit"),
    *_needs("machines", "/storage", "make disks", "Datastore.AllocateSpace"),
    *_needs("machines", "/storage", "upload bootstrap ISOs", "Datastore.AllocateTemplate"),
    *_needs("machines", "/storage", "delete bootstrap ISOs", "Datastore.Allocate"),
    *_needs("machines", "/sdn/zones", "use bridges and vnets", "SDN.Use"),
    *_needs("volumes", "/vms", "attach and detach disks", "VM.Audit", "VM.Config.Disk"),
    *_needs("volumes", "/storage", "make disks", "Datastore.Audit", "Datastore.AllocateSpace"),
    *_needs("volumes", "/storage", "delete disks", "Datastore.Allocate"),
    *_needs("volumes", "/nodes", "see tasks", "Sys.Audit"),
    *_needs(
        "volume-copies", "/vms", "snapshot and clone volumes",
        "VM.Allocate", "VM.Clone", "VM.Snapshot", "VM.Config.Disk", "VM.Config.Options",
    ),
    *_needs("volume-moves", "/vms", "bring clones of volumes to another host", "VM.Migrate"),
    *_needs(
        "volume-replicas", "/vms", "replicate volumes",
        "VM.Allocate", "VM.Migrate", "VM.Config.Disk", "VM.Config.Options",
    ),
    *_needs("volume-replicas", "/vms", "replicate volumes", "VM.Replicate", majors=(9,)),
    *_needs(
        "volume-replicas", "/storage", "replicate volumes", "Datastore.Allocate", majors=(8,)
    ),
    *_needs("volume-foreign-tasks", "/", "see what others do to guests at once", "Sys.Audit"),
    *_needs("templates", "/nodes", "fetch images", "Sys.AccessNetwork"),
    *_needs(
        "templates", "/storage", "keep images and make disks",
        "Datastore.Audit", "Datastore.AllocateTemplate", "Datastore.AllocateSpace",
    ),
    *_needs("templates", "/storage", "delete images", "Datastore.Allocate"),
    *_needs(
        "templates", "/vms", "create templates",
        "VM.Audit", "VM.Allocate", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType",
        "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
    ),
    *_needs("templates", "/sdn/zones", "use bridges and vnets", "SDN.Use"),
    *_needs(
        "templates", "/vms", "run builder guests",
        "VM.PowerMgmt", "VM.Config.CDROM", "VM.Config.Cloudinit",
    ),
    *_needs("templates", "/vms", "see that a builder is ready", "VM.Monitor", majors=(8,)),
    *_needs(
        "templates", "/vms", "see that a builder is ready", "VM.GuestAgent.FileRead", majors=(9,)
    ),
    *_needs("snapshots", "/vms", "take snapshots", "VM.Audit", "VM.Snapshot"),
    *_needs("ha", "/", "register guests with HA", "Sys.Console", "Sys.Audit"),
    *_needs("pools", "/pool", "put guests into pools", "Pool.Allocate", "Pool.Audit"),
    *_needs("addresses", "/sdn/zones", "reserve addresses", "SDN.Allocate", "SDN.Audit"),
    *_needs("tenants", "/pool", "make pools of tenants", "Pool.Allocate"),
    *(
        need
        for major in (8, 9)
        for need in _needs(
            "tenants", "/pool", "grant tenants rights on their pools",
            *tenant_privileges(major), majors=(major,),
        )
    ),
    *_needs("tenants", "/sdn/zones", "make VNets of tenants", "SDN.Allocate", "SDN.Audit"),
    *_needs("tenants", "/sdn", "apply VNets of tenants", "SDN.Allocate"),
    *_needs("tenants", "/", "make security groups of tenants", "Sys.Audit", "Sys.Modify"),
    *_needs(
        "tenants", f"/access/groups/{TENANT_GROUP}", "make tokens of tenants", "User.Modify"
    ),
)  # fmt: skip


class PreflightReport(Struct, frozen=True):
    """Result of the check of a region."""

    region: str
    version: str
    missing: tuple[Need, ...]

    @property
    def ok(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        if self.ok:
            return f"region {self.region}: Proxmox VE {self.version}, all privileges are granted"
        lines = [f"  {n.privilege} on {n.path}: to {n.purpose}" for n in self.missing]
        return "\n".join([f"region {self.region}: missing privileges", *lines])


def needs(major: int, features: Collection[Feature] = FEATURES) -> tuple[Need, ...]:
    """Return the needs of features on a release, each privilege on each path once."""
    found: dict[tuple[str, str], Need] = {}
    for need in NEEDS:
        if need.feature in features and min(major, 9) in need.majors:
            found.setdefault((need.path, need.privilege), need)
    return tuple(found.values())


def role(major: int, features: Collection[Feature] = FEATURES) -> tuple[str, ...]:
    """Return the privileges of a sufficient role."""
    return tuple(sorted({need.privilege for need in needs(major, features)}))


def commands(major: int, user: str, features: Collection[Feature] = FEATURES) -> tuple[str, ...]:
    """Return the ``pveum`` commands that create the role and assign it to a user."""
    paths = sorted({need.path for need in needs(major, features)})
    return (
        f"pveum role add {ROLE} --privs '{' '.join(role(major, features))}'",
        *(f"pveum acl modify {path} --users {user} --roles {ROLE}" for path in paths),
    )


def held(permissions: Mapping[str, Mapping[str, int]], path: str) -> frozenset[str]:
    """Return the privileges on a path: its own, else those its nearest ancestor propagates."""
    if path in permissions:
        return frozenset(permissions[path])
    parts = path.rstrip("/").split("/")
    for length in range(len(parts) - 1, 0, -1):
        above = "/".join(parts[:length]) or "/"
        if above in permissions:
            return frozenset(p for p, propagates in permissions[above].items() if propagates)
    return frozenset()


def missing(
    permissions: Mapping[str, Mapping[str, int]],
    major: int,
    features: Collection[Feature] = FEATURES,
) -> tuple[Need, ...]:
    """Return the needs that the permissions do not meet."""
    return tuple(n for n in needs(major, features) if n.privilege not in held(permissions, n.path))


async def check(pve: PveReader, features: Collection[Feature] = FEATURES) -> PreflightReport:
    """Read the permissions of our credentials (two requests) and compare them with the needs."""
    version = await pve.version()
    permissions = await pve.access.permissions()
    return PreflightReport(
        pve.region, version.version, missing(permissions, version.major, features)
    )
