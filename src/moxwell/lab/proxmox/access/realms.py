"""
``/access/domains``: stores additional authentication realms; login through them is not simulated.

The realms ``pam`` and ``pve`` are always there: PVE adds them again when it reads its file.
"""

from collections.abc import Mapping

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.state import Row

TYPES = ("ad", "ldap", "openid", "pam", "pve")
HOST_USERS = ("root",)  # accounts of the hosts
BUILTIN: Mapping[str, Row] = {
    "pam": {"type": "pam", "comment": "Linux PAM standard authentication"},
    "pve": {"type": "pve", "comment": "Proxmox VE authentication server"},
}


def read(call: PveCall) -> Row:
    """GET one realm."""
    realm, realms = call.params["realm"], call.region.access.realms
    if realm not in realms:
        raise die(f"domain '{realm}' does not exist")
    plugin = {"plugin": "PVE::Auth::PAM"} if realm == "pam" else {}
    return {**realms[realm], **plugin, "digest": digest_of(realms)}


def check_password_change(call: PveCall, userid: str) -> None:
    """Raise the error of the realm of a user whose password is set."""
    name, _, realm = userid.rpartition("@")
    found = call.region.access.realms.get(realm)
    if found is None:
        raise die(f"auth domain '{realm}' does not exist")
    if found["type"] not in BUILTIN:
        raise die(f"can't set password on auth type '{found['type']}'")
    if found["type"] == "pam" and name not in HOST_USERS:
        raise die(f"change password failed: usermod: user '{name}' does not exist")


def create(call: PveCall) -> None:
    error_prefix, realms = "add auth server failed: ", call.region.access.realms
    realm, kind = call.params.pop("realm"), call.params["type"]
    if realm in realms:
        raise die(f"{error_prefix}domain '{realm}' already exists")
    if kind in {"pam", "pve"}:
        raise die(f"{error_prefix}unable to create builtin type '{kind}'")
    for option in _REQUIRED[kind]:
        if option not in call.params:
            raise die(f"{error_prefix}missing value for required option '{option}'")
    call.params.pop("password", None)
    _write(realms, realm, dict(call.params))


def _write(realms: dict[str, Row], realm: str, row: Row) -> None:
    """Only one realm is the default."""
    if row.get("default"):
        for other in realms.values():
            other.pop("default", None)
    realms[realm] = row
    _add_builtin(realms)


def _add_builtin(realms: dict[str, Row]) -> None:
    for name, default in BUILTIN.items():
        found = realms.setdefault(name, {})
        found["type"] = default["type"]
        found["comment"] = found.get("comment") or default["comment"]


def update(call: PveCall) -> None:
    error_prefix, realms = "update auth server failed: ", call.region.access.realms
    realm = call.params.pop("realm")
    if realm not in realms:
        raise die(f"{error_prefix}domain '{realm}' does not exist")
    removed = formats.split_list(call.params.pop("delete", ""))
    new = {k: v for k, v in call.params.items() if k not in {"digest", "password"}}
    if not removed and not new:
        raise die(f"{error_prefix}no options specified")
    kept = {k: v for k, v in realms[realm].items() if k not in removed}
    _write(realms, realm, kept | new)


def delete(call: PveCall) -> None:
    realm, realms = call.params["realm"], call.region.access.realms
    if realm not in realms:
        raise die(f"delete auth server failed: authentication domain '{realm}' does not exist")
    del realms[realm]
    _add_builtin(realms)


_REQUIRED = {
    "ad": ("domain", "server1"),
    "ldap": ("base_dn", "user_attr", "server1"),
    "openid": ("issuer-url", "client-id"),
}
_MAY = perm("/access/realm", "Realm.Allocate")

ROUTES = (
    ApiRoute(
        "GET",
        "/access/domains/{realm}",
        read,
        permission=perm("/access/realm", "Realm.Allocate", "Sys.Audit", any_of=True),
    ),
    ApiRoute("POST", "/access/domains", create, permission=_MAY),
    ApiRoute("PUT", "/access/domains/{realm}", update, permission=_MAY),
    ApiRoute("DELETE", "/access/domains/{realm}", delete, permission=_MAY),
)
