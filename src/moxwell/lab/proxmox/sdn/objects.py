"""SDN objects as configured, running, or with pending changes; and the simple kinds of them."""

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.section_config import SectionType
from moxwell.lab.proxmox.state import Row

NESTED = "400 Parameter verification failed.\n"
MODIFIED = "detected modified configuration - file changed by other user? Try again."


def object_row(call: PveCall, kind: str, ident: str, key: str) -> Row | None:
    """One object: as configured (default), running, or with pending changes."""
    edited: dict[str, Row] = getattr(call.region.sdn, kind)
    running = call.region.sdn.running.get(kind, {})
    if call.get("running"):
        return {key: ident, "digest": None, **running[ident]} if ident in running else None
    if call.get("pending"):
        return pending_row(key, ident, edited.get(ident), running.get(ident))
    if ident not in edited:
        return None
    return {key: ident, "digest": digest_of(edited), **edited[ident]}


def pending_row(key: str, ident: str, new: Row | None, old: Row | None) -> Row | None:
    """The running object with ``pending`` and ``state``."""
    if new is None and old is None:
        return None
    row: Row = {key: ident, "digest": None, "type": (new or old or {}).get("type")}
    if new is None or old is None:
        only = {k: v for k, v in (new or old or {}).items() if k != "type"}
        if new is None:
            return row | only | {"state": "deleted", "pending": {}}
        return row | {"state": "new", "pending": only}
    changed = {k: v for k, v in new.items() if old.get(k) != v}
    changed |= {k: "deleted" for k in old if k not in new}
    row |= old
    return row | ({"state": "changed", "pending": changed} if changed else {})


def listing(call: PveCall, kind: str, key: str) -> list[Row]:
    """All objects of a kind."""
    sdn = call.region.sdn
    names = dict.fromkeys([*getattr(sdn, kind), *sdn.running.get(kind, {})])
    rows = [object_row(call, kind, name, key) for name in names]
    return [row for row in rows if row is not None]


def check_digest(call: PveCall, digest: str, error_prefix: str) -> None:
    """Check and remove the digest of a request."""
    if call.params.pop("digest", digest) != digest:
        raise die(error_prefix + MODIFIED)


def new_row(call: PveCall, row: Row, error_prefix: str, section: SectionType | None = None) -> Row:
    """The object after an update: options deleted and set, not stored yet."""
    call.params.pop("lock-token", None)
    names = formats.split_list(call.params.pop("delete", ""))
    if section is not None:
        section.check({k: v for k, v in call.params.items() if k != "type"}, create=False)
    changed = dict(row)
    try:
        if section is not None:
            section.delete(changed, call.params, names)
    except PveException as problem:
        raise die(error_prefix + problem.message) from problem
    for name in names if section is None else ():
        changed.pop(name, None)
    return changed | call.params


# ---------------------------------------------------------------- ipams, dns


class PlainObjects:
    """CRUD handlers of one kind of objects without further checks."""

    def __init__(self, kind: str, key: str) -> None:
        self._kind, self._key = kind, key

    def _found(self, call: PveCall) -> dict[str, Row]:
        rows: dict[str, Row] = getattr(call.region.sdn, self._kind)
        return rows

    def list(self, call: PveCall) -> list[Row]:
        rows = self._found(call)
        stamp = digest_of({k: v for k, v in rows.items() if k != "pve"})
        return [{self._key: name, "digest": stamp, **row} for name, row in rows.items()]

    def get(self, call: PveCall) -> Row:
        rows, name = self._found(call), call.params[self._key]
        if name not in rows:
            raise die(f"sdn '{name}' does not exist")
        return {self._key: name, "digest": digest_of(rows), **rows[name]}

    def create(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params.pop(self._key)
        call.params.pop("lock-token", None)
        if name in rows:
            text = f"sdn {self._key} object ID '{name}' already defined"
            raise die(f"create sdn {self._key} object failed: {text}")
        rows[name] = dict(call.params)

    def update(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params.pop(self._key)
        error_prefix = f"update sdn {self._key} object failed: "
        if name not in rows:
            raise die(f"{error_prefix}sdn '{name}' does not exist")
        check_digest(call, digest_of(rows), error_prefix)
        rows[name] = new_row(call, rows[name], error_prefix)

    def delete(self, call: PveCall) -> None:
        rows, name = self._found(call), call.params[self._key]
        if name not in rows:
            raise die(f"delete sdn {self._key} object failed: sdn '{name}' does not exist")
        del rows[name]


def plain_routes(kind: str, key: str) -> tuple[ApiRoute, ...]:
    """The routes of ipams or dns."""
    made, base = PlainObjects(kind, key), f"/cluster/sdn/{kind}"
    one = f"{base}/{{{key}}}"
    allocate = perm(f"/sdn/{kind}", "SDN.Allocate")
    return (
        ApiRoute("GET", base, made.list, permission=anyone),
        ApiRoute("POST", base, made.create, permission=allocate),
        ApiRoute("GET", one, made.get, permission=allocate),
        ApiRoute("PUT", one, made.update, permission=allocate),
        ApiRoute("DELETE", one, made.delete, permission=allocate),
    )
