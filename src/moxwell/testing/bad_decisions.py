"""Decisions that a process of the autoscaler must survive; it imports them by name."""

from moxwell.errors import Invalid


def endless() -> None:
    """Never return."""
    while True:
        pass


def hungry() -> int:
    """Use more memory than a process may have."""
    return len(bytearray(4 << 30))


def refused() -> None:
    """Raise an error of ours."""
    raise Invalid("no such pool")


def ended() -> None:
    """End the process."""
    raise SystemExit(3)
