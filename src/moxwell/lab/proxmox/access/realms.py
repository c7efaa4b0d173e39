"""
``/access/domains``: stores additional authentication realms; login through them is not simulated.
"""

from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.params import DIGEST
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Param
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
_REALM = {"realm": Param(optional=False, format=formats.realm, max_length=32)}
_TEXT, _BOOL = Param(), Param("boolean")
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("acr-values", "capath", "cert", "certkey", "scopes", "username-claim"), _TEXT),
    **dict.fromkeys(("base_dn", "bind_dn", "client-id", "client-key", "issuer-url"), _TEXT),
    **dict.fromkeys(("filter", "group_classes", "group_dn", "group_filter", "prompt"), _TEXT),
    **dict.fromkeys(("group_name_attr", "groups-claim", "sync-defaults-options", "tfa"), _TEXT),
    **dict.fromkeys(("sync_attributes", "user_attr", "user_classes", "password"), _TEXT),
    **dict.fromkeys(("autocreate", "case-sensitive", "check-connection", "default"), _BOOL),
    **dict.fromkeys(("groups-autocreate", "groups-overwrite", "query-userinfo"), _BOOL),
    **dict.fromkeys(("secure", "verify"), _BOOL),
    "comment": Param(max_length=4096),
    "domain": Param(max_length=256, pattern=r"\S+"),
    "mode": Param(enum=("ldap", "ldaps", "ldap+starttls")),
    "port": Param("integer", minimum=1, maximum=65535),
    "server1": Param(max_length=256),
    "server2": Param(max_length=256),
    "sslversion": Param(enum=("tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3")),
}
_NEW = {"type": Param(optional=False, enum=TYPES)}
_EDIT = {"delete": Param(max_length=4096), "digest": DIGEST}
_MAY = perm("/access/realm", "Realm.Allocate")

ROUTES = (
    ApiRoute("POST", "/access/domains", create, _REALM | _FIELDS | _NEW, _MAY),
    ApiRoute("PUT", "/access/domains/{realm}", update, _REALM | _FIELDS | _EDIT, _MAY),
    ApiRoute("DELETE", "/access/domains/{realm}", delete, _REALM, _MAY),
)
