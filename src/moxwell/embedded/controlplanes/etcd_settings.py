"""``control_planes.etcd`` of the configuration file: the members of the etcd of tenants."""

import ipaddress

from moxwell import config_file
from moxwell.config_file import InvalidConfig

WHERE = "control_planes.etcd"
LOOPBACK = "127.0.0.1"
COUNTS = (1, 3, 5)


def parse(value: object) -> tuple[str, ...]:
    """The address of each member; ``members`` alone puts them on loopback."""
    if value is None:
        return (LOOPBACK,)
    if not isinstance(value, dict):
        raise InvalidConfig(f"{WHERE}: must be a mapping with members or addresses")
    config_file.refuse_unknown(WHERE, value, frozenset({"members", "addresses"}))
    if len(value) != 1:
        raise InvalidConfig(f"{WHERE}: set members or addresses, not both")
    if "members" in value:
        return (LOOPBACK,) * _count(value["members"])
    found = value["addresses"]
    if not isinstance(found, list):
        raise InvalidConfig(f"{WHERE}.addresses: must be a list of addresses of this machine")
    _count(len(found))
    return tuple(_address(each) for each in found)


def _count(value: object) -> int:
    if value not in COUNTS or isinstance(value, bool):
        raise InvalidConfig(f"{WHERE}: there are 1, 3 or 5 members, not {value}")
    return int(str(value))


def _address(value: object) -> str:
    try:
        found = ipaddress.IPv4Address(str(value))
    except ValueError:
        raise InvalidConfig(f"{WHERE}.addresses: {value!r} is not an IPv4 address") from None
    if found.is_unspecified or found.is_multicast:
        raise InvalidConfig(f"{WHERE}.addresses: no member can listen on {found}")
    return str(found)
