"""Random objects of built-in kinds from the table of Go types, with some fields of a wrong type."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

FieldRows = Sequence[tuple[str, int, str, str]]
TEXTS = (
    "",
    "a",
    "a-b.c",
    "A_B",
    "-",
    "/",
    "a/b/c",
    "\ud800",
    "\x00",
    "²",
    "10Mi",
    "1e9",
    "-1",
    "100%",
    "2020-01-01T00:00:00Z",
    "10.0.0.0/8",
    "::1",
    "Pod",
    "v1",
    "x" * 300,
    "=,!(",
    "AA==",
)
NUMBERS: tuple[Any, ...] = (0, 1, -1, 65535, 65536, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300)
VALID: Mapping[str, Sequence[Any]] = {
    "Time": ("2020-01-01T00:00:00Z", "2020-01-01T01:00:00+02:00", None),
    "MicroTime": ("2020-01-01T00:00:00.000001Z", None),
    "Duration": ("1h", "0s", "5m0.1s"),
    "Quantity": ("1", "10Mi", "1e9", 3, 0.5, "-1", "0"),
    "IntOrString": (1, 80, "http", "100%", 0, -1),
    "Raw": ({}, [], "a", 1, None, {"a": {"b": [1]}}),
    "bytes": ("", "AA==", "eA=="),
}


class ObjectFuzzer:
    """Generates objects; ``wrong`` is the probability that a value has another type."""

    def __init__(
        self, table: Mapping[str, FieldRows], source: random.Random, wrong: float = 0.02
    ) -> None:
        self._table, self._random, self._wrong = table, source, wrong

    def struct(self, name: str, depth: int = 0) -> Any:
        """Generate a struct with a random part of its fields."""
        made: dict[str, Any] = {}
        share = 0.8 if depth < 2 else 0.3 if depth < 5 else 0.1
        for json_name, _, word, flags in self._table[name]:
            if "i" in flags or not json_name:
                made |= self.struct(word.lstrip("*@"), depth)
            elif self._random.random() < share:
                made[json_name] = self.value(word, depth + 1)
        return made

    def value(self, word: str, depth: int) -> Any:
        """Generate a value of a type."""
        if self._random.random() < self._wrong or depth > 12:
            return self.any(depth)
        word = word.lstrip("*")
        if word.startswith("["):
            return [self.value(word[1:], depth + 1) for _ in range(self._random.choice((0, 1, 2)))]
        if word.startswith("{"):
            size = self._random.choice((0, 1, 2))
            return {self.text(): self.value(word[1:], depth + 1) for _ in range(size)}
        if word.startswith("@"):
            return self.struct(word[1:], depth)
        if word == "bool":
            return self._random.random() < 0.5
        if word.startswith(("int", "uint", "float")):
            return self._random.choice(NUMBERS[:4])
        if word in VALID and self._random.random() < 0.95:
            return self._random.choice(VALID[word])
        return self.text()

    def text(self) -> str:
        return self._random.choice(TEXTS)

    def any(self, depth: int = 0) -> Any:
        """Generate any JSON value."""
        kind = self._random.randrange(7 if depth < 6 else 4)
        if kind == 0:
            return self._random.choice((None, True, False))
        if kind == 1:
            return self._random.choice(NUMBERS)
        if kind <= 3:
            return self.text()
        size = self._random.randrange(3)
        if kind == 4:
            return [self.any(depth + 1) for _ in range(size)]
        return {self.text(): self.any(depth + 1) for _ in range(size)}
