"""Validators of the string formats in schemas; unknown formats are not validated."""

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_HOSTNAME = re.compile(
    r"^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*$"
)
_DURATION = re.compile(
    r"^[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$|^[-+]?0$"
)
_EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return test


def _uri(text: str) -> bool:
    return bool(urlsplit(text).scheme)


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": lambda text: (
        bool(_DATE_TIME.match(text)) and _parses(datetime.fromisoformat)(text)
    ),
    "datetime": lambda text: bool(_DATE_TIME.match(text)),
    "date": _parses(lambda text: datetime.strptime(text, "%Y-%m-%d")),
    "duration": lambda text: bool(_DURATION.match(text)),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "hostname": lambda text: len(text) <= 255 and bool(_HOSTNAME.match(text)),
    "email": lambda text: bool(_EMAIL.match(text)),
    "uuid": _parses(uuid.UUID),
    "uri": _uri,
}
