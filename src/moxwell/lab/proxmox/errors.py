"""
How a simulated Proxmox says no.

``PveError`` is what a handler or a worker raises; the engine turns it into an answer, or into
the end of a task when it happens inside one. Its text is PVE's own.
"""

from moxwell.errors import Terminal


class PveError(Terminal):
    """An answer with this status; ``message`` without its newline."""

    reason = "SimulatedRefusal"

    def __init__(self, status: int, message: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors

    @property
    def in_task(self) -> str:
        """The text a worker ends with: PVE shows the code of anything but a plain ``die``."""
        lead = "" if self.status == 500 and not self.errors else f"{self.status} "
        rows = "".join(f"\n{name}: {text.rstrip()}" for name, text in (self.errors or {}).items())
        return f"{lead}{self.message}{rows}"


class FormatError(Terminal):
    """A value that does not have the form its schema asks for."""

    reason = "SimulatedFormat"


def die(message: str) -> PveError:
    """What Perl's ``die`` becomes: status 500."""
    return PveError(500, message)


def bad_params(**errors: str) -> PveError:
    """A 400 that names the parameters (``-`` in names is written ``_``)."""
    return param_error({name.replace("_", "-"): text for name, text in errors.items()})


def param_error(errors: dict[str, str]) -> PveError:
    return PveError(400, "Parameter verification failed.", errors)


def forbidden(what: str = "") -> PveError:
    return PveError(403, f"Permission check failed ({what})" if what else "Permission check failed")
