"""What a check has to say, as a value: how bad, about what, in which words, and what to do."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "remark", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence. ``check`` is from a closed set, so that programs can count."""

    level: Level
    check: str
    about: str
    what: str
    do: str = ""

    def row(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def wrong(check: str, about: str, what: str, do: str) -> Finding:
    """The two sides disagree: a person must look."""
    return Finding("wrong", check, about, what, do)


def remark(check: str, about: str, what: str, do: str = "") -> Finding:
    """Worth knowing; nothing is broken."""
    return Finding("remark", check, about, what, do)


def unknown(check: str, about: str, what: str, do: str) -> Finding:
    """Could not be looked at, so nothing is promised of it."""
    return Finding("unknown", check, about, what, do)


def unread(region: str, denied: Mapping[str, str], what: str) -> Iterator[Finding]:
    """A part of a region that these credentials may not read: said, and nothing concluded."""
    if what in denied:
        said = f"{what} in {region} were not looked at: {denied[what]}"
        do = "give the token that privilege if verify should look there too"
        yield remark("MayNotLook", f"{region}/{what}", said, do)
