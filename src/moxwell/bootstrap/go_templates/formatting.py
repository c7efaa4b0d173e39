"""``printf``, ``print`` and ``println`` as Go's fmt formats them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.formatting_verbs import VerbFlags, basic, padded
from moxwell.bootstrap.go_templates.printing import show
from moxwell.bootstrap.go_templates.values import (
    Absent,
    go_type,
    is_nil,
    is_struct,
    pointed,
    struct_fields,
)

_INDEX = r"(?:\[(?P<{0}>[^\]]*)\])?"
_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)" + _INDEX.format("i1") + r"(?P<width>\*|\d+)?"
    r"(?:(?P<dot>\.)" + _INDEX.format("i2") + r"(?P<precision>\*|\d*))?" + _INDEX.format("i3")
    # a width after an index of its own is an error in Go, too
    + r"(?P<verb>.)?",
    re.S,
)  # fmt: skip
MAX_WIDTH = 10_000


def sprint(values: tuple[Any, ...]) -> str:
    """Join values; a space stands between two that are both no strings."""
    out: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            out.append(" ")
        out.append(show(value))
    return "".join(out)


def sprintln(values: tuple[Any, ...]) -> str:
    return " ".join(map(show, values)) + "\n"


def sprintf(template: str, values: tuple[Any, ...]) -> str:
    """Format values by a format string."""
    arguments = _Arguments(values)
    out: list[str] = []
    position = 0
    for found in _VERB.finditer(template):
        out += [template[position : found.start()], *_formatted(found, arguments)]
        position = found.end()
    out.append(template[position:])
    if not arguments.reordered and (rest := values[arguments.next :]):
        extra = ", ".join("<nil>" if is_nil(v) else f"{go_type(v)}={show(v)}" for v in rest)
        out.append(f"%!(EXTRA {extra})")
    return "".join(out)


@dataclass(slots=True)
class _Arguments:
    """The arguments of one call, and which is the next."""

    values: Sequence[Any]
    next: int = 0
    reordered: bool = False
    known: bool = field(default=True)  # whether the last index was right

    def select(self, text: str | None) -> bool:
        """Go to the argument that ``[n]`` names; whether there was an index."""
        if text is None:
            return False
        self.reordered = True
        number = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0
        if 0 < number <= len(self.values):
            self.next = number - 1
        else:
            self.known = False
        return True

    def star(self) -> int | None:
        """The argument of ``*``; None if there is none or it is no small integer."""
        if self.next >= len(self.values):
            return None
        value = self.values[self.next]
        self.next += 1
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return int(value) if abs(value) <= MAX_WIDTH else None


def _formatted(found: re.Match[str], arguments: _Arguments) -> Iterator[str]:
    """Yield the text of one verb, after what is wrong with its width or precision."""
    arguments.known = True
    flags, wrong = _width(found, _flags(found["flags"]), arguments)
    yield wrong
    if found["dot"]:
        flags, wrong = _precision(found, flags, arguments)
        yield wrong
    arguments.select(found["i3"])
    yield _verb(found["verb"], flags, arguments)


def _verb(verb: str | None, flags: VerbFlags, arguments: _Arguments) -> str:
    if verb is None:
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    if not arguments.known:
        return f"%!{verb}(BADINDEX)"
    if arguments.next >= len(arguments.values):
        return f"%!{verb}(MISSING)"
    value = arguments.values[arguments.next]
    arguments.next += 1
    if verb == "v" and flags.sharp:
        flags = replace(flags, sharp=False, syntax=True)
    if verb == "v" and flags.plus:
        flags = replace(flags, plus=False, names=True)
    return _shown(verb, value, flags)


def _flags(text: str) -> VerbFlags:
    return VerbFlags("-" in text, "+" in text, "#" in text, " " in text, "0" in text)


def _width(found: re.Match[str], flags: VerbFlags, arguments: _Arguments) -> tuple[VerbFlags, str]:
    indexed = arguments.select(found["i1"])
    if found["width"] == "*":
        width = arguments.star()
        if width is None:
            return flags, "%!(BADWIDTH)"
        if width < 0:
            flags = replace(flags, minus=True, zero=False)
        return replace(flags, width=abs(width)), ""
    if found["width"] is None:
        return flags, ""
    arguments.known = arguments.known and not indexed
    return replace(flags, width=_limited(found["width"])), ""


def _precision(
    found: re.Match[str], flags: VerbFlags, arguments: _Arguments
) -> tuple[VerbFlags, str]:
    if found["i1"] is not None and found["width"] is None:
        arguments.known = False
    indexed = arguments.select(found["i2"])
    if found["precision"] == "*":
        precision = arguments.star()
        if precision is None or precision < 0:
            return flags, "%!(BADPREC)"
        return replace(flags, precision=precision), ""
    arguments.known = arguments.known and not (indexed and found["precision"])
    return replace(flags, precision=_limited(found["precision"])), ""


def _limited(digits: str) -> int:
    value = int(digits[:9] or 0)
    if value > MAX_WIDTH:
        raise FunctionFailed(f"width or precision above {MAX_WIDTH}")
    return value


def _shown(verb: str, value: Any, flags: VerbFlags) -> str:
    """Format an argument."""
    if is_nil(value):
        return padded("<nil>", flags) if verb in "Tv" else _bad(verb, value, flags)
    if verb == "T":
        return padded(go_type(value), flags)
    return _bad(verb, value, flags) if verb == "w" else _part(verb, value, flags)


def _part(verb: str, value: Any, flags: VerbFlags) -> str:
    """Format a value or a part of one."""
    value = pointed(value)
    if isinstance(value, Absent) or value is None:
        return "interface {}(nil)" if flags.syntax else "<nil>"
    if isinstance(value, dict):
        pairs = (
            f"{_part(verb, key, flags)}:{_part(verb, value[key], flags)}" for key in sorted(value)
        )
        if flags.syntax:
            return f"{go_type(value)}{{{', '.join(pairs)}}}"
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list | tuple):
        return _sequence(verb, value, flags)
    if is_struct(value):
        return _struct(verb, value, flags)
    text = basic(verb, value, flags)
    return _bad(verb, value, flags) if text is None else text


def _sequence(verb: str, value: Sequence[Any], flags: VerbFlags) -> str:
    parts = (_part(verb, item, flags) for item in value)
    if flags.syntax:
        return f"{go_type(value)}{{{', '.join(parts)}}}"
    return f"[{' '.join(parts)}]"


def _struct(verb: str, value: Any, flags: VerbFlags) -> str:
    named = flags.names or flags.syntax
    parts = [
        (f"{name}:" if named else "") + _part(verb, inner, flags)
        for name, _, inner in struct_fields(value)
    ]
    return f"{go_type(value)}{{{', '.join(parts)}}}" if flags.syntax else f"{{{' '.join(parts)}}}"


def _bad(verb: str, value: Any, flags: VerbFlags) -> str:
    """What Go prints for a verb that the type does not have; the flags stay in force."""
    if is_nil(value):
        return f"%!{verb}(<nil>)"
    return f"%!{verb}({go_type(value)}={_part('v', value, flags)})"
