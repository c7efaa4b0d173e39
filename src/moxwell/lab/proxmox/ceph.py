"""
Ceph on nodes without it: every method fails because a program is missing, as on a real node.

Storages of type ``rbd`` and ``cephfs`` of a world are external clusters.
"""

from collections.abc import Iterator

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import by_schema

_INSTALLERS = {"mds/{name}": "ceph-mds", "mgr/{id}": "ceph-mgr", "mon/{monid}": "ceph-mon"}
_METHODS = {
    "cfg/db": "GET",
    "cfg/raw": "GET",
    "cfg/value": "GET",
    "cmd-safety": "GET",
    "crush": "GET",
    "fs": "GET",
    "fs/{name}": "POST",
    "init": "POST",
    "log": "GET",
    "mds": "GET",
    "mds/{name}": "POST DELETE",
    "mgr": "GET",
    "mgr/{id}": "POST DELETE",
    "mon": "GET",
    "mon/{monid}": "POST DELETE",
    "osd": "GET POST",
    "osd/{osdid}": "DELETE",
    "osd/{osdid}/in": "POST",
    "osd/{osdid}/lv-info": "GET",
    "osd/{osdid}/metadata": "GET",
    "osd/{osdid}/out": "POST",
    "osd/{osdid}/scrub": "POST",
    "pool": "GET POST",
    "pool/{name}": "PUT DELETE",
    "pool/{name}/status": "GET",
    "restart": "POST",
    "rules": "GET",
    "start": "POST",
    "status": "GET",
    "stop": "POST",
}
_CLUSTER = {"flags": "GET PUT", "flags/{flag}": "GET PUT", "metadata": "GET", "status": "GET"}


def _missing(program: str) -> Handler:
    def handler(call: PveCall) -> None:
        raise die(f"binary not installed: /usr/bin/{program}")

    return handler


def _routes() -> Iterator[ApiRoute]:
    for base, methods in (("/nodes/{node}/ceph", _METHODS), ("/cluster/ceph", _CLUSTER)):
        for path, names in methods.items():
            for method in names.split():
                program = _INSTALLERS.get(path, "ceph-mon") if method == "POST" else "ceph-mon"
                yield ApiRoute(method, f"{base}/{path}", _missing(program), permission=by_schema)


ROUTES = tuple(_routes())
