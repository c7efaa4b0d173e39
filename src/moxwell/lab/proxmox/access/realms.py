"""
``/access/domains``: stores additional authentication realms; login through them is not simulated.
"""

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import perm

TYPES = ("ad", "ldap", "openid", "pam", "pve")


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
    realms[realm] = dict(call.params)


def update(call: PveCall) -> None:
    error_prefix, realms = "update auth server failed: ", call.region.access.realms
    realm = call.params.pop("realm")
    if realm not in realms:
        raise die(f"{error_prefix}domain '{realm}' does not exist")
    removed = formats.split_list(call.params.pop("delete", ""))
    new = {k: v for k, v in call.params.items() if k not in {"digest", "password"}}
    if not removed and not new:
        raise die(f"{error_prefix}no options specified")
    for option in removed:
        realms[realm].pop(option, None)
    realms[realm].update(new)


def delete(call: PveCall) -> None:
    realm, realms = call.params["realm"], call.region.access.realms
    if realm not in realms:
        raise die(f"delete auth server failed: authentication domain '{realm}' does not exist")
    del realms[realm]


_REQUIRED = {
    "ad": ("domain", "server1"),
    "ldap": ("base_dn", "user_attr", "server1"),
    "openid": ("issuer-url", "client-id"),
}
_MAY = perm("/access/realm", "Realm.Allocate")

ROUTES = (
    ApiRoute("POST", "/access/domains", create, permission=_MAY),
    ApiRoute("PUT", "/access/domains/{realm}", update, permission=_MAY),
    ApiRoute("DELETE", "/access/domains/{realm}", delete, permission=_MAY),
)
