"""Lists of features that no simulated region uses, and the certificates of nodes."""

import hashlib
from typing import Any

from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import Row, SimHost

_DIRECTORIES = {
    "Let's Encrypt V2": "https://acme-v02.api.letsencrypt.org/directory",
    "Let's Encrypt V2 Staging": "https://acme-staging-v02.api.letsencrypt.org/directory",
}
_LIFETIME = 2 * 365 * 86400
_RENEWED_AFTER = _LIFETIME - 14 * 86400


def _empty(call: PveCall) -> list[Row]:
    return []


def fabrics(call: PveCall) -> Row:
    return {"fabrics": [], "nodes": []}


def acme_directories(call: PveCall) -> list[Row]:
    return [{"name": name, "url": url} for name, url in _DIRECTORIES.items()]


def fingerprint(host: SimHost) -> str:
    """A stable fingerprint of a node's certificate."""
    return hashlib.sha256(host.name.encode()).digest().hex(":").upper()


def certificates(call: PveCall) -> list[Row]:
    """GET certificates/info: the certificate of the node's API, which Proxmox renews in time."""
    host, boot = call.host, int(call.host.boot)
    age = max(int(call.now()) - boot, 0)
    issued = boot + age // _RENEWED_AFTER * _RENEWED_AFTER
    return [
        {
            "filename": "pve-ssl.pem",
            "fingerprint": fingerprint(host),
            "issuer": "/CN=Proxmox Virtual Environment/O=PVE Cluster Manager CA",
            "notafter": issued + _LIFETIME,
            "notbefore": issued,
            "public-key-bits": 2048,
            "public-key-type": "rsaEncryption",
            "san": ["127.0.0.1", "localhost", host.address.partition("/")[0], host.name],
            "subject": f"/OU=PVE Cluster Node/O=Proxmox Virtual Environment/CN={host.name}",
        }
    ]


_LISTS: dict[str, Any] = {
    "/access/tfa": _empty,
    "/cluster/acme/account": _empty,
    "/cluster/acme/challenge-schema": _empty,
    "/cluster/acme/directories": acme_directories,
    "/cluster/acme/plugins": _empty,
    "/cluster/metrics/server": _empty,
    "/cluster/jobs/realm-sync": _empty,
    "/nodes/{node}/aplinfo": _empty,
    "/nodes/{node}/certificates/info": certificates,
}
_FABRICS: dict[str, Handler] = {
    "/cluster/sdn/fabrics/all": fabrics,
    "/cluster/sdn/fabrics/fabric": _empty,
    "/cluster/sdn/fabrics/node": _empty,
}
ROUTES = (
    *(ApiRoute("GET", path, handler, permission=by_schema) for path, handler in _LISTS.items()),
    *(
        ApiRoute("GET", path, handler, permission=by_schema, version=9)
        for path, handler in _FABRICS.items()
    ),
)
