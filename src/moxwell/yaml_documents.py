"""
Reads YAML that users write into objects and Secrets, within limits.

What one user wrote is read in a process that serves all of them. A text with many values takes
seconds to build, one with many levels overflows the stack of libyaml's composer, and aliases of
aliases grow without bound as soon as somebody copies them. So the events of the parser, which
neither build nor recurse, are counted first.

Values are those of Kubernetes: a date and ``12:30`` are text. A key that a mapping has twice is
refused, because one of the two would be ignored.
"""

from collections.abc import Hashable
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
MAX_DEPTH = 100
MAX_VALUES = 20_000  # of all documents, with those that aliases repeat


class YamlLimitExceeded(yaml.YAMLError):
    """The text exceeds a limit of depth or size, or a scalar cannot be a value of Python."""


class DuplicateKey(yaml.MarkedYAMLError):
    """A mapping has a key twice."""


class _Loader(yaml.CSafeLoader):
    """Builds the values that Kubernetes knows, and refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:  # before the keys of << are added, which it may overwrite
            if isinstance(key, yaml.ScalarNode) and key.tag != _TAG + "merge":
                if (key.tag, key.value) in seen:
                    raise DuplicateKey(problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float | str:
        if ":" in node.value:
            return str(node.value)
        if node.tag == _TAG + "int":
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


_Loader.add_constructor(_TAG + "int", _Loader.construct_number)
_Loader.add_constructor(_TAG + "float", _Loader.construct_number)
_Loader.add_constructor(_TAG + "timestamp", lambda _, node: str(node.value))


def load_all(text: str | bytes, most: int = MAX_VALUES) -> list[Any]:
    """The documents of a text, ``most`` values at most; raises yaml.YAMLError."""
    try:
        check(text, most)
        return list(yaml.load_all(text, _Loader))
    except ValueError:  # of a date, a number or a character; its text may be a secret
        raise YamlLimitExceeded("a value that cannot exist") from None


def load(text: str | bytes) -> Any:
    """The only document of a text, None if there is none; raises yaml.YAMLError."""
    documents = load_all(text)
    if len(documents) > 1:
        raise YamlLimitExceeded("more than one document")
    return documents[0] if documents else None


def problem_of(error: yaml.YAMLError) -> str:
    """What is wrong, as the end of a sentence: where, and what. It quotes a part of the text."""
    problem = getattr(error, "problem", "") or getattr(error, "reason", "")
    return line_of(error) + (f": {problem}" if problem else "")


def line_of(error: yaml.YAMLError) -> str:
    """Where a YAML error is, or which limit it exceeds, as the end of a sentence."""
    if isinstance(error, YamlLimitExceeded):
        return f": {error}"
    mark = getattr(error, "problem_mark", None)
    twice = ": a key is there twice" if isinstance(error, DuplicateKey) else ""
    return (f" in line {mark.line + 1}" if mark else "") + twice


def check(text: str | bytes, most: int) -> None:
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
