"""
A YAML reader whose errors name the file, line and field.

``YamlTree`` wraps one YAML node. Its readers (``text``, ``integer``, ``size``, ...) check types;
``done`` rejects unknown fields and suggests the nearest known name.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.errors import Invalid

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?$", re.I)
MAX_VALUES = 1_000_000
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class InvalidFile(Invalid):
    """An invalid world or state file; the message has file, line and field."""

    reason = "InvalidFile"


class YamlTree:
    """One YAML node and its path."""

    def __init__(self, node: yaml.Node, source: str, path: str = "") -> None:
        self._node, self._source, self._path = node, source, path
        self._read_names: set[str] = set()

    @classmethod
    def parse(cls, text: str, source: str) -> "YamlTree":
        try:
            yaml_documents.check(text, MAX_VALUES)
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as problem:
            line = problem.problem_mark.line + 1 if problem.problem_mark else 0
            raise InvalidFile(f"{source}:{line}: not YAML: {problem.problem}") from problem
        except yaml.YAMLError as problem:
            why = yaml_documents.problem_of(problem)
            raise InvalidFile(f"{source}: not YAML{why}") from problem
        if node is None:
            raise InvalidFile(f"{source}:1: the file is empty")
        return cls(node, source)

    def error(self, text: str) -> InvalidFile:
        """An error about this node."""
        where = self._path or "the file"
        return InvalidFile(f"{self._source}:{self._node.start_mark.line + 1}: {where}: {text}")

    # ------------------------------------------------------------------ structure

    def _entries(self) -> dict[str, yaml.Node]:
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error("must be a mapping of fields")
        return {str(key.value): value for key, value in self._node.value}

    def has(self, name: str) -> bool:
        self._read_names.add(name)
        return name in self._entries()

    def find(self, name: str) -> "YamlTree | None":
        """An optional field."""
        self._read_names.add(name)
        node = self._entries().get(name)
        return None if node is None else self._below(node, name)

    def get(self, name: str) -> "YamlTree":
        """A required field."""
        found = self.find(name)
        if found is None:
            raise self.error(f"field '{name}' is missing")
        return found

    def _below(self, node: yaml.Node, name: str) -> "YamlTree":
        return YamlTree(node, self._source, f"{self._path}.{name}".removeprefix("."))

    def items(self, name: str) -> Iterator["YamlTree"]:
        """The items of a list field; none if it is missing."""
        found = self.find(name)
        if found is None:
            return
        if not isinstance(found._node, yaml.SequenceNode):
            raise found.error("must be a list")
        for at, node in enumerate(found._node.value):
            yield YamlTree(node, self._source, f"{found._path}[{at}]")

    def fields(self) -> Iterator[tuple[str, "YamlTree"]]:
        """Every field of a mapping."""
        for name, node in self._entries().items():
            self._read_names.add(name)
            yield name, self._below(node, name)

    def done(self) -> None:
        """Raise for the first field that was not read."""
        for name, node in self._entries().items():
            if name not in self._read_names:
                near = difflib.get_close_matches(name, sorted(self._read_names), 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise self._below(node, name).error(f"unknown field '{name}'{hint}")

    # ------------------------------------------------------------------ values

    def value(self) -> Any:
        """The plain YAML value."""
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_document(self._node)
        finally:
            loader.dispose()

    def text(self, name: str, default: str | None = None) -> str:
        found = self.find(name) if default is not None else self.get(name)
        if found is None:
            assert default is not None
            return default
        if not isinstance(found._node, yaml.ScalarNode):
            raise found.error("must be a string")
        return str(found._node.value)

    def integer(self, name: str, default: int | None = None, least: int | None = None) -> int:
        found = self.find(name) if default is not None else self.get(name)
        if found is None:
            assert default is not None
            return default
        value = found.value()
        if isinstance(value, bool) or not isinstance(value, int):
            raise found.error(f"must be an integer, not {value!r}")
        if least is not None and value < least:
            raise found.error(f"must be at least {least}, not {value}")
        return value

    def number(self, name: str, default: float) -> float:
        found = self.find(name)
        if found is None:
            return default
        value = found.value()
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise found.error(f"must be a number of 0 or more, not {value!r}")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        found = self.find(name)
        if found is None:
            return default
        value = found.value()
        if value not in (True, False, 0, 1):
            raise found.error(f"must be true or false, not {value!r}")
        return bool(value)

    def size(self, name: str, default: int | None = None) -> int:
        """Bytes: a number, or a string such as ``32G``."""
        found = self.find(name) if default is not None else self.get(name)
        if found is None:
            assert default is not None
            return default
        match = _SIZE.match(str(found.value()))
        if not match:
            raise found.error(f"must be a size such as 32G, not {found.value()!r}")
        return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])

    def choice(self, name: str, options: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in options:
            raise self.get(name).error(f"must be one of {', '.join(options)}, not '{value}'")
        return value
