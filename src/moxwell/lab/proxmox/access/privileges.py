"""
The privileges and built-in roles of PVE, by major version.

The table is organized as in PVE::AccessControl: per area, the privileges for root, admin, user and
audit. The roles ``PVE<Area>Admin``, ``PVE<Area>User``, ``PVEAdmin`` and ``PVEAuditor`` are derived
from it.
"""

from functools import cache

_VM_ADMIN = (
    "VM.Config.Disk VM.Config.CPU VM.Config.Memory VM.Config.Network VM.Config.HWType "
    "VM.Config.Options VM.Allocate VM.Clone VM.Migrate VM.Snapshot VM.Snapshot.Rollback"
)
_ADMIN_9 = " VM.GuestAgent.Unrestricted VM.Replicate"
_VM_USER = "VM.Config.CDROM VM.Config.Cloudinit VM.Console VM.Backup VM.PowerMgmt"
_USER_9 = " VM.GuestAgent.FileRead VM.GuestAgent.FileWrite VM.GuestAgent.FileSystemMgmt"

# area -> (root, admin, user, audit)
_SHARED: dict[str, tuple[str, str, str, str]] = {
    "Sys": (
        "Sys.PowerMgmt Sys.Modify Sys.Incoming Sys.AccessNetwork",
        "Sys.Console Sys.Syslog",
        "",
        "Sys.Audit",
    ),
    "Datastore": (
        "",
        "Datastore.Allocate Datastore.AllocateTemplate",
        "Datastore.AllocateSpace",
        "Datastore.Audit",
    ),
    "SDN": ("", "SDN.Allocate SDN.Audit", "SDN.Use", "SDN.Audit"),
    "User": ("Realm.Allocate", "User.Modify Group.Allocate Realm.AllocateUser", "", ""),
    "Pool": ("", "Pool.Allocate", "Pool.Audit", "Pool.Audit"),
    "Mapping": ("", "Mapping.Modify", "Mapping.Use", "Mapping.Audit"),
}


def _areas(major: int) -> dict[str, tuple[str, str, str, str]]:
    if major >= 9:
        vm = ("", _VM_ADMIN + _ADMIN_9, _VM_USER + _USER_9, "VM.Audit VM.GuestAgent.Audit")
    else:
        vm = ("", _VM_ADMIN + " VM.Monitor", _VM_USER, "VM.Audit")
    return {"VM": vm, **_SHARED}


@cache
def all_privileges(major: int) -> frozenset[str]:
    """All privileges of a major version."""
    listed = " ".join(text for area in _areas(major).values() for text in area)
    return frozenset(listed.split()) | {"Permissions.Modify"}


@cache
def builtin_roles(major: int) -> dict[str, frozenset[str]]:
    """The built-in roles."""
    roles: dict[str, set[str]] = {"PVEAdmin": set(), "PVEAuditor": set()}
    for area, (_, admin, user, audit) in _areas(major).items():
        full = set(f"{admin} {user} {audit}".split())
        roles[f"PVE{area}Admin"] = full
        roles["PVEAdmin"] |= full
        if user:
            roles[f"PVE{area}User"] = set(f"{user} {audit}".split())
        roles["PVEAuditor"] |= set(audit.split())
    roles["PVEAdmin"].discard("Mapping.Modify")
    roles["PVETemplateUser"] = {"VM.Clone", "VM.Audit"}
    roles["NoAccess"] = set()
    roles["Administrator"] = set(all_privileges(major))
    return {name: frozenset(privs) for name, privs in roles.items()}
