"""Formats of single areas of the API: HA, SDN, storages, backup jobs, firewall, access."""

import ipaddress
import json
import re
from collections.abc import Mapping

from moxwell.lab.proxmox.access.privileges import all_privileges
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.formats import by_pattern
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Checker

_MASKS = frozenset(str(ipaddress.ip_network(f"0.0.0.0/{n}").netmask) for n in range(33))
_DAYS = frozenset(formats.words("mon tue wed thu fri sat sun"))
_HELPERS = frozenset(formats.words("amanda ftp irc netbios-ns pptp sane sip snmp tftp"))
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
_LABEL, _ALIAS = r"(?i:[a-z0-9][a-z0-9_-]*)", r"(?i:[a-z0-9_][a-z0-9_-]*)"
_ID = r"(?i:[a-z][a-z0-9]*[a-z0-9])"

ha_resource_id = by_pattern(r"[a-z]+:\S+", "value does not look like a valid ha resource id")
ha_resource_or_vmid = by_pattern(
    r"(\d+|[a-z]+:\S+)", "value does not look like a valid ha resource id"
)
ha_node = by_pattern(
    r"[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?(:\d+)?",
    "value does not look like a valid ha group node",
)
replication_job = by_pattern(r"[1-9][0-9]{2,8}-\d{1,9}", "invalid replication job id '{}'")
iface = by_pattern(r"(?i:[a-z][a-z0-9_]{1,20}([:\.]\d+)?)", "invalid network interface name '{}'")
boot_disk = by_pattern(r"(ide|sata|scsi|virtio)\d+", "invalid boot disk '{}'")
mac_prefix = by_pattern(
    r"(?i:[a-f0-9][02468ace](?::[a-f0-9]{2}){0,2}:?)",
    "value is not a valid unicast MAC address prefix",
)
ldap_attribute = by_pattern(
    "[a-zA-Z0-9]+", "value '{}' does not look like a simple ldap attribute name"
)
email_or_user = by_pattern(
    r"[\w\+\-\~]+(\.[\w\+\-\~]+)*(@(([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9\-]+))?|[^\s:/]+(@[A-Za-z][\w.\-]+)?",
    "value does not look like a valid email address or user name",
)
graphite_path = by_pattern(
    r"[a-z][a-z0-9_.\-]*[a-z0-9]?", "value does not look like a valid graphite path"
)
volume_group = by_pattern(
    r"(?i:[a-z0-9+.\-_]*[a-z0-9+._])", "lvm volume group name '{}' contains illegal characters"
)
mount_options = by_pattern(r"\S+", "invalid mount options '{}'")
dir_override = by_pattern(r"[a-z]+=.+", "invalid override '{}'")
path_in_property_string = by_pattern(r"/[^,]*", "value does not look like a valid absolute path")
route_target = by_pattern(
    r"(\d+|(?:\d{1,3}\.){3}\d{1,3}):\d+", "value does not look like a valid route-target '{}'"
)
isis_net = by_pattern(
    r"[a-fA-F0-9]{2}(\.[a-fA-F0-9]{4}){3,9}\.[a-fA-F0-9]{2}",
    "value does not look like a valid isis net",
)
controller_id = by_pattern(
    r"(?i:[a-z][a-z0-9_-]*[a-z0-9])", "controller ID '{}' contains illegal characters"
)
dns_id = by_pattern(_ID, "dns ID '{}' contains illegal characters")
ipam_id = by_pattern(_ID, "ipam ID '{}' contains illegal characters")
fabric_id = by_pattern(
    r"[a-zA-Z0-9][a-zA-Z0-9-]{0,6}[a-zA-Z0-9]?", "fabric ID '{}' contains illegal characters"
)
acme_domain = by_pattern(
    rf"{_LABEL}(?:\.{_LABEL})+", "value '{}' does not look like a valid domain name!"
)
acme_alias = by_pattern(
    rf"{_ALIAS}(?:\.{_ALIAS})+", "value '{}' does not look like a valid alias name!"
)
task_status = by_pattern(r"(?i:ok|error|warning|unknown)", "unknown status type '{}'")
full_token_id = by_pattern(
    rf"[^\s:/]+@{formats.REALM}!{formats.REALM}", "value '{}' does not look like a valid token ID"
)
vlan_range = by_pattern(r"\d{1,4}(-\d{1,4})?", "invalid VLAN ID or range '{}'")


def _short_id(kind: str, value: str) -> None:
    if not re.match(rf"^{_ID}$", value):
        raise FormatError(f"{kind} ID '{value}' contains illegal characters\n")
    if len(value) > 8:
        raise FormatError(f"{kind} ID '{value}' can't be more length than 8 characters\n")


def zone_id(value: str) -> None:
    _short_id("zone", value)


def vnet_id(value: str) -> None:
    _short_id("vnet", value)


def subnet_id(value: str) -> None:
    """``zone-address-bits``, or an address range."""
    text = value.split("-", 1)[1].replace("-", "/") if value.count("-") == 2 else value
    formats.cidr(text)


def cidr_v4(value: str) -> None:
    if not formats.is_cidr(value, 4):
        raise FormatError("value does not look like a valid IPv4 network\n")


def cidr_v6(value: str) -> None:
    if not formats.is_cidr(value, 6):
        raise FormatError("value does not look like a valid IPv6 network\n")


def ipv4_mask(value: str) -> None:
    if value not in _MASKS:
        raise FormatError("value does not look like a valid IP netmask\n")


def day_of_week(value: str) -> None:
    if value not in _DAYS:
        raise FormatError(f"invalid day '{value}'\n")


def conntrack_helper(value: str) -> None:
    for helper in formats.split_list(value):
        if helper not in _HELPERS:
            raise FormatError(f"unsupported conntrack helper '{helper}'\n")


def privileges(value: str, path: str, major: int) -> None:
    """A list of privileges of this major version."""
    for name in formats.split_list(value):
        if name not in all_privileges(major):
            raise FormatError(f"invalid privilege '{name}'\n")


def pem(label: str, *, multiple: bool = False) -> Checker:
    """A check of PEM text: one block with a label, or several; text before them is ignored."""
    lines = r"(?:[0-9A-Za-z+/]+[ \t\r]*\n+)*[0-9A-Za-z+/]*={0,2}[ \t\r]*\n+"
    block = rf"-----BEGIN {label}-----[ \t\r]*\n+{lines}-----END {label}-----\s*"
    pattern = re.compile(rf"(?:{block})+" if multiple else block)

    def check(value: str) -> None:
        if not pattern.fullmatch(value, max(value.find("-----BEGIN "), 0)):
            raise FormatError("not a valid PEM-formatted string.\n")

    return check


def command_batch(value: str) -> None:
    """A JSON array of objects with ``path`` and ``method``, for several requests in one."""
    try:
        commands = json.loads(value)
    except ValueError as error:
        text = f"commands param did not contain valid JSON: {error}\n"
        raise FormatError(text) from None
    problem = _batch_problem(commands)
    if problem:
        raise FormatError(f"commands is not a valid array of commands: {problem}\n")


def _batch_problem(commands: object) -> str:
    if not isinstance(commands, list):
        return "type check ('array') failed"
    for at, command in enumerate(commands):
        if not isinstance(command, dict):
            return f"[{at}]: type check ('object') failed"
        for name in ("method", "path"):
            if not isinstance(command.get(name), str):
                return f"[{at}].{name}: property is missing and it is not optional"
        if command["method"] not in _METHODS:
            return f"[{at}].method: value does not match the regex pattern"
    return ""


def storage_server(value: str) -> None:
    try:
        formats.address(value)
    except FormatError:
        text = "value does not look like a valid server name or IP address\n"
        raise FormatError(text) from None


def storage_portal(value: str) -> None:
    host = re.sub(r"(?<=[^:]):\d+$", "", value)
    try:
        formats.address(host.strip("[]"))
    except FormatError:
        raise FormatError("value does not look like a valid portal address\n") from None


def storage_pair(value: str) -> None:
    for name in value.split(":", 1):
        if name != "1":
            formats.storage_id(name)


def bridge_pair(value: str) -> None:
    for name in value.split(":", 1):
        if name != "1":
            formats.bridge_id(name)


def keep_all_alone(values: Mapping[str, str]) -> None:
    """``keep-all`` excludes other options."""
    if values.get("keep-all") == "1" and any(
        int(value) for key, value in values.items() if key != "keep-all"
    ):
        raise FormatError("keep-all cannot be set together with other options.\n")
