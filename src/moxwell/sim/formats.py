"""
Named formats: what a value must look like, in PVE's own words.

Each checker takes a text and raises ``FormatError`` with what follows "invalid format - ".
``each`` makes a list format of one; lists are split at commas, semicolons, blanks and NULs.
"""

import ipaddress
import re

from moxwell.sim.fault import FormatError
from moxwell.sim.route import Checker, Param

_CONFIGID = re.compile(r"^[a-z][a-z0-9_-]+$", re.I)
_NAME = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)"
_DNS = re.compile(rf"^(?:{_NAME}\.)*{_NAME}$")
_STORAGE = re.compile(r"^[a-z][a-z0-9._-]*[a-z0-9]$", re.I)
_REALM = r"[A-Za-z][A-Za-z0-9._-]+"
_TOKEN = re.compile(r"^[A-Za-z][A-Za-z0-9._-]+$")


def _rule(pattern: str | re.Pattern[str], text: str, kind: str) -> Checker:
    compiled = re.compile(pattern) if isinstance(pattern, str) else pattern

    def check(value: str) -> None:
        if not compiled.match(value):
            raise FormatError(f"{text.format(value)}\n" if "{}" in text else f"{text}\n")

    check.__name__ = kind
    return check


vmid = _rule(r"^[1-9][0-9]{2,8}$", "value does not look like a valid VM ID", "vmid")
node = _rule(rf"^{_NAME}$", "value does not look like a valid node name", "node")
configid = _rule(_CONFIGID, "invalid configuration ID '{}'", "configid")
storage_id = _rule(_STORAGE, "storage ID '{}' contains illegal characters", "storage")
dns_name = _rule(_DNS, "value does not look like a valid DNS name", "dns_name")
address = _rule(r"^\S+$", "value does not look like a valid IP address", "address")
email = _rule(
    r"^[\w\+\-\~]+(\.[\w\+\-\~]+)*@[a-zA-Z0-9\-]+(\.[a-zA-Z0-9\-]+)*$",
    "value does not look like a valid email address",
    "email",
)
_pool_name = _rule(
    r"^[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+){0,2}$",
    "pool name '{}' contains invalid characters",
    "poolid",
)
mac = _rule(
    re.compile(r"^[a-f0-9][02468ace](:[a-f0-9]{2}){5}$", re.I),
    "value does not look like a valid unicast MAC address",
    "mac",
)
realm = _rule(rf"^{_REALM}$", "value does not look like a valid realm", "realm")
tokenid = _rule(_TOKEN, "value '{}' does not look like a valid token ID", "tokenid")
roleid = _rule(r"^[A-Za-z0-9.\-_]+$", "role name '{}' contains invalid characters", "roleid")
groupid = _rule(r"^[A-Za-z0-9.\-_]+$", "group name '{}' contains invalid characters", "groupid")


def poolid(value: str) -> None:
    if len(value.split("/")) > 3:
        raise FormatError(f"pool name '{value}' nested too deeply (max levels = 3)\n")
    _pool_name(value)


def userid(value: str) -> None:
    if len(value) < 3:
        raise FormatError(f"user name '{value}' is too short\n")
    if len(value) > 64:
        raise FormatError(f"user name '{value}' is too long ({len(value)} > 64)\n")
    if not re.match(rf"^[^\s:/]+@{_REALM}$", value):
        raise FormatError(f"value '{value}' does not look like a valid user name\n")


def ip(value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError as problem:
        raise FormatError("value does not look like a valid IP address\n") from problem


def cidr(value: str) -> None:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError as problem:
        raise FormatError("value does not look like a valid CIDR network\n") from problem
    if "/" not in value:
        raise FormatError("value does not look like a valid CIDR network\n")


def abs_path(value: str) -> None:
    if not value.startswith("/"):
        raise FormatError("value does not look like a valid absolute path\n")


def email_opt(value: str) -> None:
    if value:
        email(value)


def each(one: Checker) -> Checker:
    """The list format of a checker."""

    def check(value: str) -> None:
        for item in split_list(value):
            one(item)

    return check


def split_list(value: str) -> list[str]:
    """The items of a PVE list."""
    return [item for item in re.split(r"[,;\s\0]+", value) if item]


NODE = Param(optional=False, format=node)
VMID = Param("integer", optional=False, minimum=100, maximum=999999999, format=vmid)
STORAGE = Param(optional=False, format=storage_id)
DIGEST = Param(max_length=64)
