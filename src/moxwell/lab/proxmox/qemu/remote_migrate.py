"""
POST remote_migrate of VMs and containers: the checks on this side, then a refused connection.

Other clusters are outside the simulated network, so a remote migration never starts. Without a
fingerprint PVE asks the other cluster for it before the remaining checks.
"""

from collections.abc import Callable

from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import PveException, bad_params, die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu.migrate import id_map
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import SimGuest


def _check_ha(call: PveCall, guest: SimGuest, label: str) -> None:
    if ha_manager.find_resource(call.region, guest) is not None:
        raise bad_params(vmid=f"cannot remote-migrate {label} that is configured for HA")


def _check_vm(call: PveCall, guest: SimGuest) -> None:
    """What is checked of a VM once the other cluster is known."""
    if any(str(j.get("guest")) == str(guest.vmid) for j in call.region.replication.values()):
        raise die("cannot remote-migrate replicated VM")
    if guest.running and not call.get("online"):
        raise die("can't migrate running VM without --online")


def _check_maps(call: PveCall) -> None:
    _, _, same = id_map(call.params["target-storage"], "target-storage")
    id_map(call.params["target-bridge"], "target-bridge", "bridge")
    if same:
        raise die("remote migration requires explicit storage mapping!")


def _refused(call: PveCall) -> tuple[PveException, bool]:
    """The refused connection, and whether a fingerprint is given."""
    remote = split(call.params["target-endpoint"], None)
    address = f"{remote.get('host', '')}:{remote.get('port', '8006')}"
    return die(f"Can't connect to {address} (Connection refused)"), "fingerprint" in remote


def _migrate_vm(call: PveCall) -> str:
    guest = call.get_guest(call.params["vmid"], "qemu")
    files.check_lock(guest)
    _check_ha(call, guest, "VM")
    refused, known = _refused(call)
    if known:
        _check_vm(call, guest)
        _check_maps(call)
    raise refused


def _migrate_container(call: PveCall) -> str:
    guest = call.get_guest(call.params["vmid"], "lxc")
    files.check_lock(guest)
    if guest.running and not call.get("online") and not call.get("restart"):
        raise die("can't migrate running container without --online or --restart")
    _check_ha(call, guest, "CT")
    refused, known = _refused(call)
    if known:
        _check_maps(call)
    raise refused


_HANDLERS: dict[str, Callable[[PveCall], str]] = {"qemu": _migrate_vm, "lxc": _migrate_container}
ROUTES = tuple(
    ApiRoute(
        "POST",
        f"/nodes/{{node}}/{kind}/{{vmid}}/remote_migrate",
        handler,
        permission=by_schema,
    )
    for kind, handler in _HANDLERS.items()
)
