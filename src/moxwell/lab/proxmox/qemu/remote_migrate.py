"""
POST remote_migrate of VMs and containers: the checks on this side, then a refused connection.

Other clusters are outside the simulated network, so a remote migration never starts.
"""

from collections.abc import Callable

from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema


def _handler(kind: str) -> Callable[[PveCall], str]:
    def remote_migrate(call: PveCall) -> str:
        guest = call.get_guest(call.params["vmid"], kind)
        files.check_lock(guest)
        label = "VM" if kind == "qemu" else "CT"
        if guest.running and not call.get("online") and not call.get("restart"):
            raise die(f"can't migrate running {label} without --online")
        if ha_manager.find_managed(call.region, guest) is not None:
            raise die(f"cannot remote-migrate HA managed {label} {guest.vmid}")
        remote = split(call.params["target-endpoint"], None)
        address = f"{remote.get('host', '')}:{remote.get('port', '8006')}"
        raise die(f"Can't connect to {address} (Connection refused)")

    return remote_migrate


ROUTES = tuple(
    ApiRoute(
        "POST",
        f"/nodes/{{node}}/{kind}/{{vmid}}/remote_migrate",
        _handler(kind),
        permission=by_schema,
    )
    for kind in ("qemu", "lxc")
)
