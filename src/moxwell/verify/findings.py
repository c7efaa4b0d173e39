"""The result of a check: its level, code, subject, message and what to do."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "remark", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result; ``check`` is a code from a closed set."""

    level: Level
    check: str
    about: str
    what: str
    do: str = ""

    def row(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def wrong(check: str, about: str, what: str, do: str) -> Finding:
    """Both sides disagree: an administrator must act."""
    return Finding("wrong", check, about, what, do)


def remark(check: str, about: str, what: str, do: str = "") -> Finding:
    """Worth knowing; nothing is broken."""
    return Finding("remark", check, about, what, do)


def unknown(check: str, about: str, what: str, do: str) -> Finding:
    """It could not be checked."""
    return Finding("unknown", check, about, what, do)


def unread(region: str, denied: Mapping[str, str], what: str) -> Iterator[Finding]:
    """A remark if the credentials may not read a part of a region."""
    if what in denied:
        message = f"{what} in {region} were not checked: {denied[what]}"
        do = "give the token that privilege if verify should check them"
        yield remark("PermissionMissing", f"{region}/{what}", message, do)
