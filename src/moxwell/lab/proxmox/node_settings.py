"""``/nodes/{node}``: hosts file, subscription, and logs, which are empty."""

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row


def hosts_file(call: PveCall) -> Row:
    lines = ["127.0.0.1 localhost"]
    lines += [f"{h.address.partition('/')[0]} {h.name}" for h in call.region.hosts.values()]
    data = call.host.settings.get("hosts", "\n".join(lines) + "\n")
    return {"data": data, "digest": digest_of(data)}


def write_hosts_file(call: PveCall) -> None:
    call.host.settings["hosts"] = call.params["data"]


def subscription(call: PveCall) -> Row:
    return {
        "status": "notfound",
        "message": "There is no subscription key",
        "serverid": digest_of(call.node)[:32].upper(),
        "url": "https://www.proxmox.com/proxmox-ve/pricing",
    }


def not_simulated(call: PveCall) -> list[Row]:
    """Logs and RRD data are not simulated."""
    return []


_NODE = "/nodes/{node}"
ROUTES = (
    ApiRoute("GET", f"{_NODE}/hosts", hosts_file, permission=perm("/", "Sys.Audit")),
    ApiRoute("POST", f"{_NODE}/hosts", write_hosts_file, permission=perm(_NODE, "Sys.Modify")),
    ApiRoute("GET", f"{_NODE}/subscription", subscription, permission=anyone),
    ApiRoute("GET", f"{_NODE}/netstat", not_simulated, permission=perm(_NODE, "Sys.Audit")),
    ApiRoute("GET", f"{_NODE}/syslog", not_simulated, permission=perm(_NODE, "Sys.Syslog")),
)
