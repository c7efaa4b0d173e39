"""
The base classes of all errors: the class says what the caller does next.

::

    MoxwellError
    ├── Retryable              try again with backoff             exit 75
    │   ├── Unreachable        nobody answered, or not in time
    │   ├── Busy               locked, queued, over a limit
    │   └── Conflict           somebody else wrote first
    ├── Terminal               try again when something changed   exit 1
    │   ├── Invalid            the request or the input is wrong
    │   ├── Missing            what was named is not there
    │   ├── Denied             not allowed with these credentials
    │   └── Unsupported        this server cannot do that
    └── Bug                    a broken invariant of ours         exit 70

The class says what to do, ``reason`` is used in conditions and events, the text says what is
wrong and what to do about it. Packages add subclasses next to the code that raises them;
they never add a fourth branch. No text of an error ever holds a secret.
"""

from typing import ClassVar


class MoxwellError(Exception):
    """The root of all errors that Moxwell raises on purpose."""

    reason: ClassVar[str] = "Error"
    exit_code: ClassVar[int] = 1


class Retryable(MoxwellError):
    """The same request may succeed later without any change."""

    reason = "Retryable"
    exit_code = 75
    retry_seconds: ClassVar[float | None] = None  # None: exponential backoff


class Unreachable(Retryable):
    """No answer, or none in time."""

    reason = "Unreachable"


class Busy(Retryable):
    """The target is locked, queued or over a limit."""

    reason = "Busy"


class Conflict(Retryable):
    """Another writer was first; observe and plan again."""

    reason = "Conflict"


class Terminal(MoxwellError):
    """The same request fails until something changes."""

    reason = "Terminal"
    retry_seconds: ClassVar[float | None] = None  # None: the interval of the program


class Invalid(Terminal):
    """The request or the input is invalid."""

    reason = "Invalid"


class Missing(Terminal):
    """The named thing does not exist."""

    reason = "NotFound"


class Denied(Terminal):
    """The credentials do not permit the request."""

    reason = "Denied"


class Unsupported(Terminal):
    """The server does not support the request."""

    reason = "Unsupported"


class Bug(MoxwellError):
    """A broken invariant in our code: the pass fails, the worker continues."""

    reason = "InternalError"
    exit_code = 70
