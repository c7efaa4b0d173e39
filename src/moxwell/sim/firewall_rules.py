"""
Firewall rules: their formats, what makes one invalid, and how a list of them is edited.

A new rule goes to the top whatever position was asked; enable is 0 unless said; a group rule keeps
only its group, interface and comment. Addresses fail with the texts of Perl's Net::IP.
"""

import ipaddress
import re
from typing import Any

from moxwell.sim.fault import FormatError, die, param_error
from moxwell.sim.route import Param
from moxwell.sim.state import Firewall, Region, Row
from moxwell.sim.verify import requirement

ACTIONS = ("ACCEPT", "DROP", "REJECT")
KINDS = ("in", "out", "forward", "group")
LOG_LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog")
_PROTOCOLS = (
    "ip icmp igmp ggp ipencap st tcp egp igp pup udp hmp xns-idp rdp iso-tp4 dccp xtp ddp "
    "idpr-cmtp ipv6 ipv6-route ipv6-frag idrp rsvp gre esp ah skip ipv6-icmp icmpv6 ipv6-nonxt "
    "ipv6-opts rspf vmtp eigrp ospf ax.25 ipip etherip encap pim ipcomp vrrp l2tp isis sctp fc "
    "mobility-header udplite mpls-in-ip manet shim6 wesp rohc"
)
_SERVICES = "ssh http https domain dns ntp smtp imap imaps pop3 pop3s ftp telnet snmp"
PROTOCOLS, SERVICES = frozenset(_PROTOCOLS.split()), frozenset(_SERVICES.split())
MACROS = {
    "Amanda": "Amanda Backup", "Auth": "Auth (identd) traffic", "BGP": "Border Gateway Protocol",
    "Ceph": "Ceph Storage Cluster traffic", "DHCPfwd": "Forwarded DHCP traffic",
    "DHCPv6": "DHCPv6 traffic", "DNS": "Domain Name System traffic",
    "FTP": "File Transfer Protocol",
    "HTTP": "Hypertext Transfer Protocol (WWW)", "HTTPS": "Hypertext Transfer Protocol over SSL",
    "IMAP": "Internet Message Access Protocol", "IMAPS": "IMAP over SSL", "IPsec": "IPsec traffic",
    "LDAP": "Lightweight Directory Access Protocol", "LDAPS": "Secure LDAP traffic",
    "MySQL": "MySQL server", "NTP": "Network Time Protocol", "OpenVPN": "OpenVPN traffic",
    "Ping": "ICMP echo request", "POP3": "POP3 traffic", "POP3S": "Encrypted POP3 traffic",
    "PostgreSQL": "PostgreSQL server", "RDP": "Microsoft Remote Desktop Protocol traffic",
    "Rsync": "Rsync server", "SMB": "Microsoft SMB traffic",
    "SMTP": "Simple Mail Transfer Protocol",
    "SNMP": "Simple Network Management Protocol", "SPICEproxy": "Proxmox VE SPICE proxy",
    "SSH": "Secure shell traffic", "Syslog": "Syslog protocol", "Telnet": "Telnet traffic",
    "VNC": "VNC traffic for VNC display's 0 - 99", "Web": "WWW traffic (HTTP and HTTPS)",
}  # fmt: skip
_NAME = r"[A-Za-z][A-Za-z0-9_-]+"
_ALIAS = re.compile(rf"^((dc|guest)/)?{_NAME}$")


def net_ip(text: str) -> int:
    """The version of an address, network or range; fails as Net::IP does."""
    first, dash, last = text.partition("-")
    address, slash, prefix = first.partition("/")
    version = 6 if ":" in address else 4
    if version == 4:
        _quads(address)
    try:
        bits = 32 if version == 4 else 128
        ipaddress.ip_address(address)
        if slash and (not prefix.isdigit() or int(prefix) > bits):
            raise FormatError(f"Prefix length {prefix} is longer than IP address ({bits})")
        if slash:
            ipaddress.ip_network(first)
        if dash:
            ipaddress.ip_address(last)
    except ValueError as problem:
        raise FormatError(
            f"Invalid prefix {text}" if slash else f"Invalid chars in IP {text}"
        ) from (problem)
    return version


def _quads(address: str) -> None:
    if not re.fullmatch(r"[0-9.]+", address):
        raise FormatError(f"Invalid chars in IP {address}")
    for quad in address.split("."):
        if not quad or int(quad) > 255:
            raise FormatError(f"Invalid quad in IP address {address} - {quad}")


def address_spec(value: str) -> int | None:
    """Source or destination; the IP version if it names addresses."""
    if value.startswith("+") or _ALIAS.match(value):
        return None
    versions = set()
    for item in value.split(","):
        try:
            versions.add(net_ip(item))
        except FormatError as problem:
            raise FormatError(f"invalid IP address: {problem}\n") from problem
    if len(versions) > 1:
        raise FormatError("detected mixed ipv4/ipv6 addresses in address list\n")
    return versions.pop()


def ip_or_cidr(value: str) -> None:
    try:
        net_ip(value)
    except FormatError as problem:
        raise FormatError(f"{problem}\n") from problem


def ip_or_cidr_or_alias(value: str) -> None:
    if not _ALIAS.match(value):
        ip_or_cidr(value)


def port_spec(value: str) -> None:
    items = value.split(",")
    if any(not item for item in items):
        raise FormatError("extraneous commas in list\n")
    for item in items:
        parts = item.split(":") if re.fullmatch(r"\d+:\d+", item) else [item]
        for port in parts:
            bad = int(port) > 65535 if port.isdigit() else port not in SERVICES
            if bad:
                raise FormatError(f"invalid port '{port}'\n")
        if len(parts) == 2 and int(parts[0]) > int(parts[1]):
            first, last = parts
            text = f"backwards range '{first}:{last}' not allowed, did you mean '{last}:{first}'?"
            raise FormatError(text + "\n")


def protocol_spec(value: str) -> None:
    number = value.isdigit() and int(value) < 256
    if not number and value not in PROTOCOLS:
        raise FormatError(f"unknown protocol '{value}'\n")


_ACTION = Param(optional=False, pattern=_NAME, min_length=2, max_length=20)
FIELDS = {
    "comment": Param(),
    "dest": Param(format=address_spec, max_length=512),
    "digest": Param(max_length=64),
    "dport": Param(format=port_spec),
    "enable": Param("integer", minimum=0),
    "icmp-type": Param(),
    "iface": Param(min_length=2, max_length=20, pattern=r"[a-zA-Z][a-zA-Z0-9_.\-]{1,20}([:.]\d+)?"),
    "log": Param(enum=LOG_LEVELS),
    "macro": Param(max_length=128),
    "pos": Param("integer", minimum=0),
    "proto": Param(format=protocol_spec),
    "source": Param(format=address_spec, max_length=512),
    "sport": Param(format=port_spec),
}
NEW = {**FIELDS, "action": _ACTION, "type": Param(optional=False, enum=KINDS)}
CHANGE = {
    **FIELDS,
    "action": Param(pattern=_NAME, min_length=2, max_length=20),
    "type": Param(enum=KINDS),
    "delete": Param(),
    "moveto": Param("integer", minimum=0),
}
KEPT = ("type", "action", "comment", "dest", "dport", "enable", "icmp-type", "iface", "log",
        "macro", "proto", "source", "sport")  # fmt: skip
KEPT_BY_GROUP = ("type", "action", "comment", "enable", "iface")
_FORWARD = frozenset({"cluster", "host", "vnet", "group"})


def make(region: Region, env: str, firewall: Firewall, values: dict[str, Any]) -> Row:
    """A checked rule out of parameters (or out of an old rule with changes)."""
    rule = {name: values[name] for name in KEPT if name in values}
    rule.setdefault("enable", 0)
    errors = _errors(region, env, firewall, rule)
    if errors:
        raise param_error(errors)
    if rule["type"] == "group":
        return {name: rule[name] for name in KEPT_BY_GROUP if name in rule}
    for name in ("source", "dest"):
        version = address_spec(rule[name]) if name in rule else None
        if version:
            rule["ipversion"] = version
    return rule


def _errors(region: Region, env: str, firewall: Firewall, rule: Row) -> dict[str, str]:
    kind, errors = rule["type"], {}
    if (kind == "group" and env in {"group", "vnet"}) or (
        kind == "forward" and env not in _FORWARD
    ):
        errors["type"] = f"invalid rule type '{kind}' for rule_env '{env}'"
    if "iface" in rule and env in {"vm", "ct"} and not re.fullmatch(r"net\d+", rule["iface"]):
        errors["iface"] = "value does not match the regex pattern 'net\\d+'"
    if kind == "group":
        return errors
    if rule["action"] not in ACTIONS:
        errors["action"] = f"unknown action '{rule['action']}'"
    macro = rule.get("macro")
    if macro is not None and macro not in MACROS:
        errors["macro"] = f"unknown macro '{macro}'"
    for name in ("dport", "sport"):
        if name in rule and "proto" not in rule and macro is None:
            errors["proto"] = requirement(name, 8)
    for name in ("source", "dest"):
        problem = _reference(region, firewall, rule[name]) if name in rule else None
        if problem:
            errors[name] = problem
    return errors


def _reference(region: Region, firewall: Firewall, text: str) -> str | None:
    own, cluster = firewall, region.firewall
    name = re.sub(r"^(dc|guest)/", "", text.removeprefix("+"))
    if text.startswith("+"):
        known = name in own.ipsets or name in cluster.ipsets or name.startswith("sdn/")
        return None if known else f"no such ipset '{name}'"
    if _ALIAS.match(text):
        known = name.lower() in own.aliases or name.lower() in cluster.aliases
        return None if known else f"no such alias '{name}'"
    return None


def move(rules: list[Row], pos: int, target: int) -> list[Row]:
    """The rule at ``pos`` before the one that is at ``target`` now."""
    rule, moved = rules[pos], []
    for at, other in enumerate(rules):
        if at == pos:
            continue
        if at == target:
            moved.append(rule)
        moved.append(other)
    return [*moved, rule] if target >= len(rules) else moved


def at(rules: list[Row], pos: int) -> Row:
    if not 0 <= pos < len(rules):
        raise die(f"no rule at position {pos}")
    return rules[pos]
