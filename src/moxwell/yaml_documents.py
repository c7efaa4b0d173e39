"""
Reads YAML that users write into objects and Secrets, within limits.

What one user wrote is read in a process that serves all of them. A text with many values takes
seconds to build, one with many levels overflows the stack of libyaml's composer, and aliases of
aliases grow without bound as soon as somebody copies them. So the events of the parser, which
neither build nor recurse, are counted first.
"""

from typing import Any

import yaml

MAX_DEPTH = 100
MAX_VALUES = 20_000  # of all documents, with those that aliases repeat


class YamlLimitExceeded(yaml.YAMLError):
    """The text exceeds a limit of depth or size, or a scalar cannot be a value of Python."""


def load_all(text: str | bytes, most: int = MAX_VALUES) -> list[Any]:
    """The documents of a text, ``most`` values at most; raises yaml.YAMLError."""
    try:
        _check(text, most)
        return list(yaml.load_all(text, yaml.CSafeLoader))
    except ValueError:  # of a date, a number or a character; its text may be a secret
        raise YamlLimitExceeded("a value that cannot exist") from None


def load(text: str | bytes) -> Any:
    """The only document of a text, None if there is none; raises yaml.YAMLError."""
    documents = load_all(text)
    if len(documents) > 1:
        raise YamlLimitExceeded("more than one document")
    return documents[0] if documents else None


def line_of(error: yaml.YAMLError) -> str:
    """Where a YAML error is, or which limit it exceeds, as the end of a sentence."""
    if isinstance(error, YamlLimitExceeded):
        return f": {error}"
    mark = getattr(error, "problem_mark", None)
    return f" in line {mark.line + 1}" if mark else ""


def _check(text: str | bytes, most: int) -> None:
    """Count values and levels; an alias counts as often as its anchor has values."""
    anchors: dict[str, int] = {}
    levels: list[tuple[str | None, int]] = []  # the anchors of open collections, values before
    values = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = levels.pop()
            if anchor:
                anchors[anchor] = values - before
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in levels):
                raise YamlLimitExceeded("a value that contains itself")
            values += anchors.get(event.anchor or "", 0)  # the loader refuses an unknown one
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            if isinstance(event, yaml.CollectionStartEvent):
                levels.append((event.anchor, values - 1))
            elif event.anchor:
                anchors[event.anchor] = 1
        if values > most:
            raise YamlLimitExceeded(f"more than {most} values")
        if len(levels) > MAX_DEPTH:
            raise YamlLimitExceeded(f"more than {MAX_DEPTH} levels")
