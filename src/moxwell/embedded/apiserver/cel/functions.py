"""
Functions and methods of CEL and the Kubernetes libraries, with their result types.

Each takes evaluated arguments; for methods the receiver comes first. Unknown functions are rejected
at compile time.
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moxwell.api.quantity import GO_ERROR, NANO, InvalidQuantity, Quantity
from moxwell.embedded.apiserver import regex
from moxwell.embedded.apiserver.cel import types
from moxwell.embedded.apiserver.cel.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    STRING,
    TIMESTAMP,
    Type,
)
from moxwell.embedded.apiserver.cel.values import (
    NONE,
    Address,
    EvaluationError,
    Network,
    Optional,
    Url,
    add,
    bounded,
    compare,
    equal,
    overload,
    type_name,
)
from moxwell.errors import MoxwellError

Function = tuple[Callable[..., Any], Type]


def _need(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise overload()
    return value


def size(value: Any) -> int:
    return len(_need(value, str, bytes, list, dict))


def to_int(value: Any) -> int:
    if isinstance(value, datetime):
        return int(value.timestamp())
    try:
        return bounded(int(_need(value, int, float, str)))
    except ValueError:
        raise EvaluationError(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None


def to_double(value: Any) -> float:
    try:
        return float(_need(value, int, float, str))
    except ValueError:
        raise EvaluationError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None


def to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        return str(value)
    return str(_need(value, int, float, str, *Network.__args__))


def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "TRUE", "True", "t", "1"):
        return True
    if value in ("false", "FALSE", "False", "f", "0"):
        return False
    raise overload()


def _pattern(text: Any) -> regex.Pattern:
    try:
        return regex.compile_pattern(_need(text, str))
    except regex.InvalidPattern as problem:
        raise EvaluationError(str(problem)) from problem


def search(text: Any, pattern: Any) -> bool:
    return _pattern(pattern).matches(_need(text, str))


def find(text: str, pattern: str) -> str:
    return _pattern(pattern).find(text)


def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = list(_pattern(pattern).find_all(text))
    return found if most < 0 else found[:most]


def substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text[start:last]


def split(text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not by:
        return list(text)
    return text.split(by) if most < 0 else text.split(by, most - 1)


def replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, str):
        return where.find(what, start)
    return next((at for at, item in enumerate(where) if equal(item, what)), -1)


def last_index_of(where: Any, what: Any) -> int:
    if isinstance(where, str):
        return where.rfind(what)
    return next((at for at in range(len(where) - 1, -1, -1) if equal(where[at], what)), -1)


def is_sorted(items: list[Any]) -> bool:
    return all(compare(a, b) <= 0 for a, b in pairwise(items))


def distinct(items: list[Any]) -> list[Any]:
    return [x for at, x in enumerate(items) if not any(equal(x, y) for y in items[:at])]


def total(items: list[Any]) -> Any:
    found: Any = 0
    for at, item in enumerate(items):
        found = item if at == 0 else add(found, item)
    return found


def least(*items: Any) -> Any:
    listed = items[0] if len(items) == 1 and isinstance(items[0], list) else list(items)
    if not listed:
        raise EvaluationError("min called on empty list")
    found = listed[0]
    for item in listed[1:]:
        found = item if compare(item, found) < 0 else found
    return found


def greatest(*items: Any) -> Any:
    listed = items[0] if len(items) == 1 and isinstance(items[0], list) else list(items)
    if not listed:
        raise EvaluationError("max called on empty list")
    found = listed[0]
    for item in listed[1:]:
        found = item if compare(item, found) > 0 else found
    return found


def _tries(make: Callable[[str], Any]) -> Callable[[Any], bool]:
    def test(text: Any) -> bool:
        try:
            make(_need(text, str))
        except (MoxwellError, ValueError):
            return False
        return True

    return test


def quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(_need(text, str))
    except InvalidQuantity:
        raise EvaluationError(GO_ERROR) from None


def as_integer(value: Quantity) -> int:
    if not value.is_integer:
        raise EvaluationError("cannot convert value to integer")
    return value.value


def _as_quantity(value: Any) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity.of(_need(value, int))


def url(text: str) -> Url:
    parts = urlsplit(text)
    if not ((parts.scheme and (parts.netloc or parts.path)) or text.startswith("/")):
        raise EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for'
            " request"
        )
    return Url(text)


def address(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise EvaluationError(
            f"IP Address {text!r} parse error during conversion from string"
        ) from None


def network(text: str) -> Network:
    try:
        if "/" not in text:
            raise ValueError
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise EvaluationError("network address parse error during conversion from string") from None


def contains_ip(net: Network, what: Any) -> bool:
    return (address(what) if isinstance(what, str) else what) in net


def contains_net(net: Network, what: Any) -> bool:
    other = network(what) if isinstance(what, str) else what
    inside = other.network_address in net and other.broadcast_address in net
    return bool(other.version == net.version and inside)


def get_or(value: Any, otherwise: Any) -> Any:
    return value.value if _need(value, Optional).there else otherwise


def unwrap(value: Any) -> Any:
    if not _need(value, Optional).there:
        raise EvaluationError("optional.none() dereference")
    return value.value


def format_text(template: str, args: list[Any]) -> str:
    """Implement ``"%s %d".format([…])``."""
    rest = iter(args)

    def put(match: "re.Match[str]") -> str:
        if match[0] == "%%":
            return "%"
        value = next(rest, None)
        return (
            to_string(value)
            if match[0][-1] in "sd" and not isinstance(value, (list, dict))
            else str(value)
        )

    return re.sub(r"%%|%(?:\.\d+)?[sdfexXob]", put, template)


FUNCTIONS: Mapping[str, Function] = {
    "size": (size, INT),
    "int": (to_int, INT),
    "uint": (to_int, INT),
    "double": (to_double, DOUBLE),
    "string": (to_string, STRING),
    "bool": (to_bool, BOOL),
    "bytes": (lambda v: v.encode() if isinstance(v, str) else _need(v, bytes), types.BYTES),
    "type": (type_name, Type("type")),
    "dyn": (lambda v: v, DYN),
    "duration": (types.parse_duration, DURATION),
    "timestamp": (types.parse_timestamp, TIMESTAMP),
    "matches": (search, BOOL),
    "isQuantity": (_tries(quantity), BOOL),
    "quantity": (quantity, Type("quantity")),
    "isURL": (_tries(url), BOOL),
    "url": (url, Type("url")),
    "isIP": (_tries(address), BOOL),
    "ip": (address, Type("ip")),
    "isCIDR": (_tries(network), BOOL),
    "cidr": (network, Type("cidr")),
    "optional.of": (lambda v: Optional(True, v), Type("optional", element=DYN)),
    "optional.none": (lambda: NONE, Type("optional", element=DYN)),
    "math.least": (least, DYN),
    "math.greatest": (greatest, DYN),
    "math.abs": (abs, DYN),
    "base64.encode": (lambda v: base64.b64encode(v).decode(), STRING),
    "base64.decode": (base64.b64decode, types.BYTES),
    "sets.contains": (lambda a, b: all(any(equal(x, y) for y in a) for x in b), BOOL),
    "sets.intersects": (lambda a, b: any(any(equal(x, y) for y in a) for x in b), BOOL),
    "sets.equivalent": (
        lambda a, b: (
            all(any(equal(x, y) for y in b) for x in a)
            and all(any(equal(x, y) for y in a) for x in b)
        ),
        BOOL,
    ),
    "ip.isCanonical": (lambda v: str(address(v)) == v, BOOL),
}


def _part(read: Callable[[datetime], int]) -> Callable[[Any], int]:
    return lambda value: read(_need(value, datetime))


def _unit(seconds: float, read: Callable[[datetime], int]) -> Callable[[Any], int]:
    def method(value: Any) -> int:
        if isinstance(value, timedelta):
            return int(value.total_seconds() / seconds)
        return read(_need(value, datetime))

    return method


METHODS: Mapping[str, Function] = {
    "size": (size, INT),
    "startsWith": (lambda s, p: _need(s, str).startswith(_need(p, str)), BOOL),
    "endsWith": (lambda s, p: _need(s, str).endswith(_need(p, str)), BOOL),
    "contains": (lambda s, p: _need(p, str) in _need(s, str), BOOL),
    "matches": (search, BOOL),
    "find": (find, STRING),
    "findAll": (find_all, Type("list", element=STRING)),
    "split": (split, Type("list", element=STRING)),
    "replace": (replace, STRING),
    "substring": (substring, STRING),
    "charAt": (lambda s, at: substring(s, at, min(at + 1, len(s))), STRING),
    "trim": (lambda s: _need(s, str).strip(), STRING),
    "lowerAscii": (lambda s: _need(s, str).lower(), STRING),
    "upperAscii": (lambda s: _need(s, str).upper(), STRING),
    "join": (lambda items, by="": by.join(items), STRING),
    "format": (format_text, STRING),
    "indexOf": (index_of, INT),
    "lastIndexOf": (last_index_of, INT),
    "isSorted": (is_sorted, BOOL),
    "sum": (total, DYN),
    "min": (least, DYN),
    "max": (greatest, DYN),
    "reverse": (lambda v: v[::-1], DYN),
    "distinct": (distinct, LIST),
    "getScheme": (lambda u: urlsplit(u.text).scheme, STRING),
    "getHost": (lambda u: urlsplit(u.text).netloc.rpartition("@")[2], STRING),
    "getHostname": (lambda u: urlsplit(u.text).hostname or "", STRING),
    "getPort": (lambda u: str(urlsplit(u.text).port or ""), STRING),
    "getEscapedPath": (lambda u: urlsplit(u.text).path, STRING),
    "getQuery": (lambda u: parse_qs(urlsplit(u.text).query), MAP),
    "family": (lambda a: a.version, INT),
    "isLoopback": (lambda a: a.is_loopback, BOOL),
    "isUnspecified": (lambda a: a.is_unspecified, BOOL),
    "isLinkLocalUnicast": (lambda a: a.is_link_local, BOOL),
    "isGlobalUnicast": (lambda a: not (a.is_loopback or a.is_multicast or a.is_link_local), BOOL),
    "containsIP": (contains_ip, BOOL),
    "containsCIDR": (contains_net, BOOL),
    "prefixLength": (lambda n: n.prefixlen, INT),
    "masked": (lambda n: n, Type("cidr")),
    "isInteger": (lambda q: q.is_integer, BOOL),
    "asInteger": (as_integer, INT),
    "asApproximateFloat": (lambda q: q.nano / NANO, DOUBLE),
    "sign": (lambda q: (q.nano > 0) - (q.nano < 0), INT),
    "isGreaterThan": (lambda a, b: compare(a, b) > 0, BOOL),
    "isLessThan": (lambda a, b: compare(a, b) < 0, BOOL),
    "compareTo": (compare, INT),
    "add": (lambda a, b: a + _as_quantity(b), Type("quantity")),
    "sub": (lambda a, b: a - _as_quantity(b), Type("quantity")),
    "orValue": (get_or, DYN),
    "or": (lambda a, b: a if _need(a, Optional).there else b, DYN),
    "value": (unwrap, DYN),
    "hasValue": (lambda v: _need(v, Optional).there, BOOL),
    "getFullYear": (_part(lambda t: t.year), INT),
    "getMonth": (_part(lambda t: t.month - 1), INT),
    "getDate": (_part(lambda t: t.day), INT),
    "getDayOfMonth": (_part(lambda t: t.day - 1), INT),
    "getDayOfWeek": (_part(lambda t: (t.weekday() + 1) % 7), INT),
    "getHours": (_unit(3600, lambda t: t.hour), INT),
    "getMinutes": (_unit(60, lambda t: t.minute), INT),
    "getSeconds": (_unit(1, lambda t: t.second), INT),
    "getMilliseconds": (_unit(1e-3, lambda t: t.microsecond // 1000), INT),
}  # fmt: skip
