"""
The audit record of a write to Proxmox: who changed what, with which request, and how it ended.

``LogAudit`` writes it as the structured log event ``proxmox write``, ``FileAudit`` to a file too.
A record never holds a secret: parameters that can carry one are replaced, long values are
shortened, and of an error only the class is kept. Who acts comes from the structlog context
variables ``controller`` and ``key``, which the worker of the runtime binds; other entry points
bind them with ``acting``.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from moxwell.clock import Clock
from moxwell.json_lines import JsonLinesFile
from moxwell.pve.values import Params, as_fields

REDACTED = "(redacted)"
MAX_VALUE_CHARACTERS = 200
_SECRET_KEY = re.compile(r"pass|secret|token|key|input-data|^command$|^args$|^content$|ticket")
_CONTENT_TYPES = frozenset({"iso", "import", "vztmpl", "images", "backup", "snippets", "rootdir"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One write; ``outcome`` is ``ok``, ``failed`` or ``refused`` (not sent)."""

    controller: str
    object: str
    region: str
    host: str = ""
    vmids: tuple[int, ...] = ()
    volume: str = ""
    name: str = ""
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    proof: str = ""
    outcome: str
    error: str = ""
    upid: str = ""
    seconds: float = 0.0


class Audit(Protocol):
    """Receives the record of every write."""

    def record(self, record: AuditRecord) -> None: ...


class LogAudit:
    """Writes each record to the structured log, without its empty fields."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("moxwell.audit")

    def record(self, record: AuditRecord) -> None:
        fields = {key: value for key, value in asdict(record).items() if value}
        self._log.info("proxmox write", **fields)


class FileAudit:
    """Appends each record to a rotated file, and writes it to the structured log."""

    def __init__(self, file: JsonLinesFile, clock: Clock) -> None:
        self._file, self._clock, self._log = file, clock, LogAudit()

    def record(self, record: AuditRecord) -> None:
        fields = {key: value for key, value in asdict(record).items() if value}
        self._file.append({"time": self._clock.now().isoformat(), **fields})
        self._log.record(record)


@contextmanager
def acting(controller: str, key: str) -> Iterator[None]:
    """Name the actor of the writes made inside the block."""
    with structlog.contextvars.bound_contextvars(controller=controller, key=key):
        yield


def actor() -> tuple[str, str]:
    """Return the current controller and object key, empty if they are not bound."""
    bound = structlog.contextvars.get_contextvars()
    return str(bound.get("controller", "")), str(bound.get("key", ""))


def is_secret(key: str, value: str) -> bool:
    """Report whether a request parameter can carry a secret."""
    if key == "content" and value in _CONTENT_TYPES:  # of a storage, not the content of a file
        return False
    return _SECRET_KEY.search(key.lower()) is not None


def redacted(params: Params) -> dict[str, str]:
    """Return parameters as they may be written to a log."""
    shown: dict[str, str] = {}
    for key, value in as_fields(params):
        text = _shown(key, value)
        shown[key] = f"{shown[key]},{text}" if key in shown and text != REDACTED else text
    return shown


def _shown(key: str, value: str) -> str:
    if key == "url":
        parts = urlsplit(value)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    if is_secret(key, value):
        return REDACTED
    if len(value) > MAX_VALUE_CHARACTERS:
        return f"({len(value)} characters)"
    return value
