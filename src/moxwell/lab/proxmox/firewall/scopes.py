"""
The scopes of firewall configuration: cluster, node, guest, security group.

As in PVE, a guest that does not exist has an empty configuration, and writes to it are lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import Check
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.state import Row, SimFirewall


@dataclass(frozen=True, slots=True)
class FirewallScope:
    """One firewall scope with its path and permissions."""

    env: str  # cluster, host, vm, ct, group, vnet
    path: str
    read: Check
    write: Check
    find: Callable[[PveCall], SimFirewall]
    rules_path: str = "/rules"
    since: int = 0  # major version


def _cluster(call: PveCall) -> SimFirewall:
    return call.region.firewall


def _host(call: PveCall) -> SimFirewall:
    return call.host.firewall


def _guest(call: PveCall) -> SimFirewall:
    guest = call.region.guests.get(call.params["vmid"])
    return guest.firewall if guest is not None else SimFirewall()


def _group(call: PveCall) -> SimFirewall:
    """A security group as a configuration that has only rules (the list is shared, not copied)."""
    group = call.region.firewall.groups.get(call.params["group"])
    if group is None:
        raise die(f"no such security group '{call.params['group']}'")
    return SimFirewall(rules=group["rules"])


CLUSTER = FirewallScope(
    "cluster", "/cluster/firewall", perm("/", "Sys.Audit"), perm("/", "Sys.Modify"), _cluster
)
HOST = FirewallScope(
    "host",
    "/nodes/{node}/firewall",
    perm("/nodes/{node}", "Sys.Audit"),
    perm("/nodes/{node}", "Sys.Modify"),
    _host,
)
SECURITY_GROUP = FirewallScope(
    "group",
    "/cluster/firewall/groups/{group}",
    CLUSTER.read,
    CLUSTER.write,
    _group,
    "",
)


def _guest_scope(kind: str, env: str) -> FirewallScope:
    return FirewallScope(
        env,
        f"/nodes/{{node}}/{kind}/{{vmid}}/firewall",
        perm("/vms/{vmid}", "VM.Audit"),
        perm("/vms/{vmid}", "VM.Config.Network"),
        _guest,
    )


def _vnet(call: PveCall) -> SimFirewall:
    sdn, name = call.region.sdn, call.params["vnet"]
    if name not in sdn.vnets:
        return SimFirewall()
    return sdn.firewalls.setdefault(name, SimFirewall())


def _vnet_privilege(*privileges: str) -> Check:
    def check(call: PveCall) -> None:
        zone = call.region.sdn.vnets.get(call.params["vnet"], {}).get("zone", "unknown")
        call.check(f"/sdn/zones/{zone}/{call.params['vnet']}", *privileges, any_of=True)

    return check


VNET = FirewallScope(
    "vnet",
    "/cluster/sdn/vnets/{vnet}/firewall",
    _vnet_privilege("SDN.Audit", "SDN.Allocate"),
    _vnet_privilege("SDN.Allocate"),
    _vnet,
)
VM, CT = _guest_scope("qemu", "vm"), _guest_scope("lxc", "ct")


def digest(part: Any) -> str:
    return digest_of(part)


def check_digest(call: PveCall, current: str) -> None:
    if call.params.get("digest", current) != current:
        raise die("detected modified configuration - file changed by other user? Try again.")


def with_digest(rows: list[Row], part: Any) -> list[Row]:
    stamp = digest(part)
    return [{**row, "digest": stamp} for row in rows]
