"""
Limits of requests and stored objects, checked before any work that grows with the input.

The figures are kube-apiserver's and etcd's unless a comment gives another reason; the table is in
``docs/security.md``. All checks take time linear in the input and never recurse.
"""

import re
from itertools import accumulate
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.errors import Invalid

MAX_BODY = 3 * 1024 * 1024
MAX_STORED = 1536 * 1024  # etcd's limit of a request
MAX_PATCH_OPERATIONS = 10_000
MAX_COPIED = MAX_BODY  # bytes that the copy operations of one JSON patch add
MAX_DEPTH = 128  # Go allows 10,000; here every level costs several frames of a bounded stack
MAX_PATCHED_DEPTH = MAX_DEPTH + 8  # managed fields nest a few levels deeper than their fields
MAX_VALUES = 100_000  # each value costs microseconds of the only thread
MAX_PATHS = 500_000_000  # the sum of the lengths of all field paths, which error messages show

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class TooDeep(Invalid):
    """The value is nested too deeply; ``bracket`` is the first character beyond the limit."""

    def __init__(self, bracket: str = "[") -> None:
        super().__init__(f"invalid character '{bracket}' exceeded max depth")


def too_large(detail: str) -> status_errors.StatusError:
    """Build kube-apiserver's 413."""
    text = f"Request entity too large: {detail}"
    return status_errors.StatusError(413, "RequestEntityTooLarge", text)


def check_body_size(body: bytes) -> None:
    if len(body) > MAX_BODY:
        raise too_large(f"limit is {MAX_BODY}")


def check_values(count: int) -> None:
    if count > MAX_VALUES:
        raise too_large(f"the limit of values in a request is {MAX_VALUES}")


def check_stored_size(body: bytes) -> None:
    """Raise etcd's error for an object that is too large to store."""
    if len(body) > MAX_STORED:
        raise status_errors.unknown_error("etcdserver: request is too large")


def check_json(body: bytes) -> None:
    """Check size, depth and number of values of a JSON text that is not parsed yet."""
    check_body_size(body)
    opened = body.count(b"{") + body.count(b"[")
    if opened <= MAX_DEPTH and opened + body.count(b",") < MAX_VALUES:
        return
    bare = _STRINGS.sub(b"", body)
    brackets = bare.translate(None, _NOT_BRACKETS)[: 2 * MAX_VALUES]
    for at, depth in enumerate(accumulate(map(_STEPS.__getitem__, brackets))):
        if depth > MAX_DEPTH:
            raise TooDeep(chr(brackets[at]))
    check_values(bare.count(b"{") + bare.count(b"[") + bare.count(b",") + 1)


def check_value(value: Any, *, max_depth: int = MAX_DEPTH) -> None:
    """Check depth, number of values and length of paths of a decoded value."""
    level, depth, count, paths = [(value, 0)], 0, 1, 0
    while level:
        if depth > max_depth:
            raise TooDeep
        below: list[tuple[Any, int]] = []
        for container, path in level:
            if container.__class__ is dict:
                count += len(container)
                for key, item in container.items():
                    at = path + len(key) + 1
                    paths += at
                    if item.__class__ is dict or item.__class__ is list:
                        below.append((item, at))
            elif container.__class__ is list:
                count += len(container)
                paths += len(container) * (path + 8)
                below += [
                    (item, path + 8)
                    for item in container
                    if item.__class__ is dict or item.__class__ is list
                ]
        check_values(count)
        if paths > MAX_PATHS:
            raise too_large(f"the limit of all field paths in a request is {MAX_PATHS}")
        level, depth = below, depth + 1


def may_have_long_paths(body: bytes) -> bool:
    """Report whether the paths of a JSON text can exceed the limit."""
    values = body.count(b",") + body.count(b"{") + body.count(b"[")
    return values * len(body) > MAX_PATHS
