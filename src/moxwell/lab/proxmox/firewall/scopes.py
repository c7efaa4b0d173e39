"""
Where firewall files live: the cluster's, a node's, a guest's, a security group's.

A guest that does not exist has an empty file, as on the real server; what is written there is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema.params import NODE, VMID
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.firewall.formats import NAME
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.route import Check, Param
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.state import Firewall, Row


@dataclass(frozen=True, slots=True)
class Place:
    """One kind of firewall file, with its path and who may read and write it."""

    env: str  # cluster, host, vm, ct, group
    path: str
    params: dict[str, Param]
    read: Check
    write: Check
    find: Callable[[Call], Firewall]
    rules_path: str = "/rules"


def _cluster(call: Call) -> Firewall:
    return call.region.firewall


def _host(call: Call) -> Firewall:
    return call.host.firewall


def _guest(call: Call) -> Firewall:
    guest = call.region.guests.get(call.params["vmid"])
    return guest.firewall if guest is not None else Firewall()


def _group(call: Call) -> Firewall:
    """A group seen as a file that has only rules (the list itself is shared, not copied)."""
    group = call.region.firewall.groups.get(call.params["group"])
    if group is None:
        raise die(f"no such security group '{call.params['group']}'")
    return Firewall(rules=group["rules"])


GROUP = Param(optional=False, pattern=NAME, min_length=2, max_length=18)
CLUSTER = Place(
    "cluster", "/cluster/firewall", {}, perm("/", "Sys.Audit"), perm("/", "Sys.Modify"), _cluster
)
HOST = Place(
    "host",
    "/nodes/{node}/firewall",
    {"node": NODE},
    perm("/nodes/{node}", "Sys.Audit"),
    perm("/nodes/{node}", "Sys.Modify"),
    _host,
)
SECURITY_GROUP = Place(
    "group",
    "/cluster/firewall/groups/{group}",
    {"group": GROUP},
    CLUSTER.read,
    CLUSTER.write,
    _group,
    "",
)


def _guest_place(kind: str, env: str) -> Place:
    return Place(
        env,
        f"/nodes/{{node}}/{kind}/{{vmid}}/firewall",
        {"node": NODE, "vmid": VMID},
        perm("/vms/{vmid}", "VM.Audit"),
        perm("/vms/{vmid}", "VM.Config.Network"),
        _guest,
    )


VM, CT = _guest_place("qemu", "vm"), _guest_place("lxc", "ct")


def digest(part: Any) -> str:
    return digest_of(part)


def check_digest(call: Call, current: str) -> None:
    if call.params.get("digest", current) != current:
        raise die("detected modified configuration - file changed by other user? Try again.")


def with_digest(rows: list[Row], part: Any) -> list[Row]:
    stamp = digest(part)
    return [{**row, "digest": stamp} for row in rows]
