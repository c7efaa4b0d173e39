"""
Configures structlog: one line per event, with the controller, key and pass bound by the worker.

``configure`` is called by ``app`` only. Every value passes through ``scrub``, which replaces values
under secret-like names and texts that look like tokens or private keys. It is a safety net; nothing
may log a secret in the first place.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

HIDDEN = "***"
_NAMES = re.compile(
    r"(?i)(secret|password|passwd|token|ticket|csrf|authorization|cookie|private.?key|kubeconfig"
    r"|api.?key|credential|user.?data|cloud.?init)"
)
_OPEN = re.compile(r"(?i)^(token_id|secret_?(name|ref)|.*_(count|seconds|name|namespace))$")
_TEXTS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|PVEAPIToken=[^\s\"']+"
    r"|PVE(?:AuthCookie|:)[^\s\"';]+"
    r"|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    r"|(?i:(?:password|token_secret|secret|token)=)[^\s&\"']+",
    re.DOTALL,
)


def scrub_text(text: str) -> str:
    """``text`` without credentials."""
    return _TEXTS.sub(HIDDEN, text)


def scrub_value(name: str, value: Any) -> Any:
    """``value`` as it may be printed under ``name``, recursively."""
    if _NAMES.search(name) and not _OPEN.match(name) and not isinstance(value, bool | int | None):
        return HIDDEN
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, Mapping):
        return {k: scrub_value(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_value("", v) for v in value]
    return value


def scrub(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The structlog processor that scrubs every value of a line."""
    return {name: scrub_value(name, value) for name, value in event.items()}


class LossyStream:
    """A stream that drops a line when the write fails, for example on a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self.lost += 1
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self.lost += 1


def configure(
    *, form: Literal["json", "console"] = "json", level: str = "info", stream: TextIO | None = None
) -> None:
    """Configure structlog for the process: JSON or console."""
    out = stream or sys.stderr
    last: list[Processor]
    if form == "json":
        last = [structlog.processors.format_exc_info, scrub, structlog.processors.JSONRenderer()]
    else:
        last = [
            structlog.processors.format_exc_info,
            scrub,
            structlog.dev.ConsoleRenderer(colors=out.isatty()),
        ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(out))),
        cache_logger_on_first_use=False,
    )
