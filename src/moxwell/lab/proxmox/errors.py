"""
The exceptions of API handlers and workers, with the messages of PVE.

The engine converts a ``PveException`` to a response, or to the exit status of a task if a worker
raises it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from moxwell.errors import Terminal


class PveException(Terminal):
    """An error response with this status; ``message`` has no trailing newline."""

    reason = "SimulatedRefusal"

    def __init__(self, status: int, message: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors

    @property
    def in_task(self) -> str:
        """
        The exit status of a worker; PVE includes the code unless it is that of a plain ``die``.
        """
        lead = "" if self.status == 500 and not self.errors else f"{self.status} "
        rows = "".join(f"\n{name}: {text.rstrip()}" for name, text in (self.errors or {}).items())
        return f"{lead}{self.message}{rows}"


class FormatError(Terminal):
    """A value that does not match the format of its schema."""

    reason = "SimulatedFormat"


def die(message: str) -> PveException:
    """Perl's ``die``: status 500."""
    return PveException(500, message)


def bad_params(**errors: str) -> PveException:
    """Status 400 with an error per parameter (``_`` in keyword names stands for ``-``)."""
    return param_error({name.replace("_", "-"): text for name, text in errors.items()})


def param_error(errors: dict[str, str]) -> PveException:
    return PveException(400, "Parameter verification failed.", errors)


def forbidden(privilege: str = "") -> PveException:
    return PveException(
        403, f"Permission check failed ({privilege})" if privilege else "Permission check failed"
    )


@contextmanager
def failing_as(failure: str) -> Iterator[None]:
    """A change under the lock of a file: PVE puts any error behind these words, as a plain die."""
    try:
        yield
    except PveException as problem:
        raise die(f"{failure}: {problem.in_task}") from problem
