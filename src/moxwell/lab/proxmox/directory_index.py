"""
Endpoints that only list the names below their path.

They do not check for existence: the index of a nonexistent guest is the same list.
"""

from typing import Any

from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Check, Handler
from moxwell.lab.proxmox.route_permissions import anyone, perm

_CLUSTER = (
    "acme backup backup-info ceph config firewall ha jobs log mapping metrics nextid "
    "notifications options replication resources sdn status tasks"
)
_NODE = (
    "aplinfo apt capabilities ceph certificates config disks dns execute firewall hardware hosts "
    "journal lxc migrateall netstat network qemu query-url-metadata replication report rrd rrddata "
    "scan sdn services spiceshell startall status stopall storage subscription suspendall syslog "
    "tasks termproxy time version vncshell vncwebsocket vzdump wakeonlan"
)


def index_handler(key: str, names: str, since_9: str = "", gone_9: str = "") -> Handler:
    """A handler that lists names under a key; some only before or since version 9."""

    def index(call: PveCall) -> list[dict[str, Any]]:
        found = names.split() + (since_9.split() if call.major >= 9 else [])
        removed = gone_9.split() if call.major >= 9 else []
        return [{key: name} for name in found if name not in removed]

    return index


def _route(
    path: str,
    key: str,
    names: str,
    *,
    check: Check = anyone,
    since_9: str = "",
    gone_9: str = "",
) -> ApiRoute:
    handler = index_handler(key, names, since_9, gone_9)
    return ApiRoute("GET", path, handler, permission=check, proxy="{node}" in path)


_FW_GUEST = "rules aliases ipset refs options"
_STORAGE = (
    "content download-url file-restore import-metadata prunebackups rrd rrddata status upload"
)

ROUTES = (
    _route("/", "subdir", "version cluster nodes storage access pools"),
    _route("/cluster", "name", _CLUSTER, since_9="bulk-action qemu"),
    _route("/cluster/metrics", "name", "server"),
    _route("/cluster/ceph", "name", "flags metadata status", since_9="restart-bulk"),
    _route(
        "/nodes/{node}",
        "name",
        _NODE,
        since_9="query-oci-repo-tags",
        gone_9="execute vncwebsocket",
    ),
    _route("/access", "subdir", "users groups roles acl domains openid tfa ticket password"),
    _route(
        "/cluster/ha",
        "id",
        "status resources groups",
        since_9="rules",
        check=perm("/", "Sys.Audit"),
    ),
    _route("/cluster/ha/status", "name", "current manager_status"),
    _route(
        "/cluster/sdn",
        "id",
        "vnets zones controllers ipams dns",
        since_9="fabrics",
        check=perm("/sdn", "SDN.Audit"),
    ),
    _route("/cluster/firewall", "name", "rules options macros refs aliases groups ipset"),
    _route("/nodes/{node}/firewall", "name", "rules options log"),
    _route("/nodes/{node}/qemu/{vmid}/firewall", "name", _FW_GUEST),
    _route("/nodes/{node}/lxc/{vmid}/firewall", "name", _FW_GUEST),
    _route(
        "/nodes/{node}/storage/{storage}",
        "subdir",
        _STORAGE,
        since_9="identity oci-registry-pull",
        check=perm("/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace", any_of=True),
    ),
    _route(
        "/cluster/config",
        "name",
        "apiversion join nodes qdevice totem",
        check=perm("/", "Sys.Audit"),
    ),
)
