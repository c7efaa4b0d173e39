"""
Configures structlog: one line per event, with the controller, key and pass bound by the worker.

``configure`` is called by ``app`` only. Every value passes through ``scrub``, which replaces values
under secret-like names and texts that look like tokens or private keys. It is a safety net; nothing
may log a secret in the first place. Every value is shortened, so that no input makes a long line.
"""

import logging as stdlib_logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from moxwell.runtime.log_rotation import RotatingStream

HIDDEN = "***"
MAX_VALUE, MAX_TRACEBACK = 2_000, 8_000  # characters
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


def shorten(value: Any) -> Any:
    """``value`` if its text is short, else the beginning of its text."""
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= MAX_VALUE:
        return value
    return f"{text[:MAX_VALUE]}... ({len(text)} characters)"


def bound(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The structlog processor that shortens every value of a line; a traceback keeps its end."""
    trace = event.pop("exception", None)
    made = {name: shorten(value) for name, value in event.items()}
    if trace is not None:
        made["exception"] = str(trace)[-MAX_TRACEBACK:]
    return made


class ForwardingHandler(stdlib_logging.Handler):
    """Forwards the messages of libraries to structlog, so that they are scrubbed and bounded."""

    def emit(self, record: stdlib_logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


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
    *,
    form: Literal["json", "console"] = "json",
    level: str = "info",
    stream: TextIO | None = None,
    rotate: Path | None = None,
) -> None:
    """
    Configure structlog and the log of libraries for the process: JSON or console.

    ``rotate`` is the file behind standard error, if this process rotates it.
    """
    out = stream or sys.stderr
    colors = out.isatty()
    if rotate is not None:
        out = cast(TextIO, RotatingStream(out, rotate))
    last: list[Processor] = [structlog.processors.format_exc_info, scrub, bound]
    if form == "json":
        last.append(structlog.processors.JSONRenderer())
    else:
        last.append(structlog.dev.ConsoleRenderer(colors=colors))
    stdlib_logging.basicConfig(
        handlers=[ForwardingHandler()], level=stdlib_logging.WARNING, force=True
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            stdlib_logging.getLevelName(level.upper())
        ),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(out))),
        cache_logger_on_first_use=False,
    )
