"""``/cluster/sdn/ipams`` and ``/dns``: external servers, and the built-in IPAM."""

from urllib.parse import urlsplit

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.locking import locked
from moxwell.lab.proxmox.sdn.objects import check_digest, new_row
from moxwell.lab.proxmox.sdn.section_types import server_type
from moxwell.lab.proxmox.state import Row

_UNREACHABLE = {
    "netbox": "Can't connect to netbox api: ",
    "phpipam": "Can't connect to phpipam api: ",
    "powerdns": "dns api error: ",
}


class PlainObjects:
    """CRUD handlers of one kind."""

    def __init__(self, kind: str, key: str) -> None:
        self._kind, self._key = kind, key

    def _found(self, call: PveCall) -> dict[str, Row]:
        rows: dict[str, Row] = getattr(call.region.sdn, self._kind)
        return rows

    def list(self, call: PveCall) -> list[Row]:
        rows, wanted = self._found(call), call.get("type")
        stamp = digest_of({k: v for k, v in rows.items() if k != "pve"})
        return [
            {self._key: name, "digest": stamp, **row}
            for name, row in rows.items()
            if wanted in (None, row["type"])
            and call.has_privileges(
                f"/sdn/{self._kind}/{name}", "SDN.Audit", "SDN.Allocate", any_of=True
            )
        ]

    def get(self, call: PveCall) -> Row:
        rows, name = self._found(call), call.params[self._key]
        if name not in rows:
            raise die(f"sdn '{name}' does not exist")
        return {self._key: name, "digest": digest_of(rows), **rows[name]}

    def create(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params.pop(self._key)
        given = {k: v for k, v in call.params.items() if k not in ("type", "lock-token")}
        server_type(call.params["type"]).check(given, create=True)
        with locked(call, f"create sdn {self._key} object failed"):
            if name in rows:
                raise die(f"sdn {self._key} object ID '{name}' already defined")
            _connect(call.params)
            rows[name] = dict(call.params)

    def update(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params.pop(self._key)
        with locked(call, f"update sdn {self._key} object failed"):
            check_digest(call, digest_of(rows))
            if name not in rows:
                raise die(f"sdn '{name}' does not exist")
            changed = new_row(call, rows[name], server_type(rows[name]["type"]))
            _connect(changed)
            rows[name] = changed

    def delete(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params[self._key]
        failure = "zone" if self._kind == "ipams" else self._key  # the words of PVE
        with locked(call, f"delete sdn {failure} object failed"):
            if name not in rows:
                raise die(f"sdn '{name}' does not exist")
            del rows[name]


def _connect(row: Row) -> None:
    """Proxmox asks the server first; no node of a simulated region reaches one."""
    if row["type"] in _UNREACHABLE:
        parts = urlsplit(str(row["url"]))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        text = f"500 Can't connect to {parts.hostname}:{port} (Connection refused)"
        raise die(f"{_UNREACHABLE[row['type']]}Invalid response from server: {text}")


def _routes(kind: str, key: str) -> tuple[ApiRoute, ...]:
    made, base = PlainObjects(kind, key), f"/cluster/sdn/{kind}"
    one = f"{base}/{{{key}}}"
    allocate = perm(f"/sdn/{kind}", "SDN.Allocate")
    return (
        ApiRoute("GET", base, made.list, permission=anyone),
        ApiRoute("POST", base, made.create, permission=allocate),
        ApiRoute("GET", one, made.get, permission=perm(f"/sdn/{kind}/{{{key}}}", "SDN.Allocate")),
        ApiRoute("PUT", one, made.update, permission=allocate),
        ApiRoute("DELETE", one, made.delete, permission=allocate),
    )


ROUTES = (*_routes("ipams", "ipam"), *_routes("dns", "dns"))
