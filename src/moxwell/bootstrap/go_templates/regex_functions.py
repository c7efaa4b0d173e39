"""``regexFind``, ``regexFindString`` and ``regexReplaceAll``, with RE2 as Go has it."""

import re
from collections.abc import Iterator
from typing import Any

from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.signatures import MAX_RESULT

_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")


def find(pattern: str, text: str) -> str:
    """Return the first match, or an empty string."""
    found = _compiled(pattern).search(text)
    return str(found[0]) if found else ""


def find_group(pattern: str, text: str, number: int) -> str:
    """Return a group of the first match, or an empty string."""
    found = _compiled(pattern).search(text)
    if number < 0:
        raise FunctionFailed(f"index out of range: {number}")
    if not found or number > len(found.groups()):
        return ""
    return str(found[number] or "")


def replace_all(pattern: str, text: str, replacement: str) -> str:
    """Replace all matches; ``$1`` and ``${name}`` stand for groups."""
    compiled, out, position, size = _compiled(pattern), list[str](), 0, 0
    for found in _matches(compiled, text):
        out += [text[position : found.start()], _expanded(found, replacement)]
        position = found.end()
        size += len(out[-2]) + len(out[-1])
        if size > MAX_RESULT:
            raise FunctionFailed(f"the result is longer than {MAX_RESULT}")
    return "".join([*out, text[position:]])


def _matches(compiled: Any, text: str) -> Iterator[Any]:
    """Yield matches; an empty one right after another match does not count."""
    position, last = 0, -1
    while position <= len(text) and (found := compiled.search(text, position)):
        if found.end() > found.start() or found.start() != last:
            yield found
            last = found.end()
        position = found.end() + (found.end() == found.start())


def _expanded(found: Any, replacement: str) -> str:
    def group(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isdecimal():
            return str(found[int(name)] or "") if int(name) <= len(found.groups()) else ""
        return str(found.groupdict().get(name) or "")

    return _REFERENCE.sub(group, replacement)


def _compiled(pattern: str) -> Any:
    import re2  # 2 MiB that few templates need

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise FunctionFailed(f"error parsing regexp: {pattern!r}") from error
