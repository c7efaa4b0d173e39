"""
Values of the Proxmox client: secrets, UPIDs, request parameters, sizes.

A ``SecretValue`` never prints its text. A UPID contains the user but no secret and may be printed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import quote

import msgspec

from moxwell.errors import Bug, Invalid

Scalar = str | int | float | bool
Value = Scalar | Sequence[str] | None
Params = Mapping[str, Value]

MAX_UPID = 512  # characters; those of Proxmox have less than 200
# A number of Proxmox. Not a number and infinity are refused: Proxmox may send them as texts.
Number = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
_UPID = re.compile(
    r"UPID:(?P<node>[^:/]+):(?P<pid>[0-9A-Fa-f]{8}):(?P<pstart>[0-9A-Fa-f]{8,9}):"
    r"(?P<start>[0-9A-Fa-f]{8}):(?P<type>[^:]*):(?P<id>[^:]*):(?P<user>[^:]*):"
)
MAX_SIZE = 40  # characters of a size
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)")
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class SecretValue:
    """A text that prints as stars; only ``reveal`` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretValue) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise Bug("a secret must not be serialized")


class Blob:
    """Bytes to upload that print as their size, because an ISO holds bootstrap secrets."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Blob({len(self.data)} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)


class Upid(str):
    """The id of a task, with its host, type and target."""

    __slots__ = ()

    def __new__(cls, text: str) -> "Upid":
        if len(text) > MAX_UPID or not text.isprintable() or not _UPID.fullmatch(text):
            raise Invalid(f"{text[:MAX_UPID]!r} is not a UPID")
        return super().__new__(cls, text)

    def _part(self, name: str) -> str:
        match = _UPID.fullmatch(self)
        assert match is not None
        return match[name]

    @property
    def host(self) -> str:
        return self._part("node")

    @property
    def type(self) -> str:
        return self._part("type")

    @property
    def target(self) -> str:
        """The object of the task: a VMID, a volume, or empty."""
        return self._part("id")

    @property
    def user(self) -> str:
        return self._part("user")

    @property
    def started(self) -> int:
        """Start in seconds since 1970 by the host's clock."""
        return int(self._part("start"), 16)


def as_field(value: Scalar) -> str:
    """Return a value as Proxmox reads it: booleans are 1 and 0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def as_fields(params: Params | None) -> list[tuple[str, str]]:
    """Return parameters as form fields: None is left out, a list repeats its field."""
    fields: list[tuple[str, str]] = []
    for key, value in (params or {}).items():
        if value is None:
            continue
        if isinstance(value, str | int | float):
            fields.append((key, as_field(value)))
        else:
            fields.extend((key, item) for item in value)
    return fields


def path(*segments: str | int) -> str:
    """Join segments to a URL path; a slash inside a segment is quoted."""
    return "".join(
        f"/{segment}" if isinstance(segment, int) else "/" + quote(segment, safe=":@!,=+")
        for segment in segments
    )


def size_bytes(text: str | int) -> int:
    """Return a size of Proxmox (``32G``, ``512M``, ``4096``) in bytes."""
    match = _SIZE.fullmatch(str(text)[:MAX_SIZE].strip())
    if match is None:
        raise Invalid(f"{str(text)[:MAX_SIZE]!r} is not a size")
    return int(float(match[1]) * _FACTOR[match[2]])
