"""
Normalizes responses: replaces identifiers, revisions, times, hashes and ports by stable words.

A :class:`Normal` belongs to one case on one server and numbers uids and revisions in order of
appearance, so that equal and different ones stay distinguishable.
"""

import re
from typing import Any

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICRO = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_AGE = re.compile(r"(?<![\w/.:-])(?:\d+[smhd]){1,2}(?![\w/.:-])|<invalid>")
_CURRENT = re.compile(r"current: \d+")
_PRINTED_RV = re.compile(r"\b(resourceVersion|Resource Version)\"?: +\"?\d+\"?")
_CHATTER = re.compile(r"^I\d{4} \d\d:\d\d:\d\d\.\d+ ")  # log lines of a Go program
_HASH = {"storageVersionHash", "hash"}


def _manager(entry: dict[str, str]) -> tuple[str, ...]:
    """Sort key of managedFields entries, whose order depends on times in whole seconds."""
    return tuple(entry.get(key, "") for key in ("manager", "operation", "subresource"))


class Normal:
    """The replacements of one case on one server."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._uids: dict[str, str] = {}
        self._revisions: dict[str, str] = {}

    def name(self, real: str, word: str) -> None:
        """Replace ``real`` by ``word`` from now on."""
        self._names[real] = word

    def body(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list):
            return [self.body(v) for v in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        for real, word in sorted(self._names.items(), key=lambda kv: -len(kv[0])):
            text = text.replace(real, word)
        text = _UID.sub(lambda m: self._token(self._uids, m[0], "uid"), text)
        text = _CURRENT.sub("current: RV", text)
        return _TIME.sub("TIME", _MICRO.sub("MICROTIME", text))

    def printed(self, text: str) -> str:
        """Normalize printed output; ages and column widths are ignored too."""
        text = _AGE.sub("AGE", _PRINTED_RV.sub(r"\1: RV", self.text(text)))
        kept = (line for line in text.splitlines() if not _CHATTER.match(line))
        return "\n".join(re.sub(r"[ \t]+", " ", line).rstrip() for line in kept)

    def _mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        generated = value.get("generateName")
        if generated and isinstance(value.get("name"), str):
            self._names.setdefault(value["name"], f"{self.text(generated)}RANDOM")
        ordered = sorted(value.items())  # so that numbering does not depend on key order
        return {self.text(k): self._field(k, v, value) for k, v in ordered}

    def _field(self, key: str, value: Any, around: dict[str, Any]) -> Any:
        if key == "resourceVersion" and isinstance(value, str):
            return self._revision(value, around)
        if key in _HASH and isinstance(value, str):
            return "HASH"
        if key == "continue" and value:
            return "CONTINUE"
        if key == "managedFields" and isinstance(value, list):
            return sorted((self.body(v) for v in value), key=_manager)
        if key == "causes" and isinstance(value, list):
            return sorted((self.body(v) for v in value), key=str)
        return self.body(value)

    def _revision(self, value: str, around: dict[str, Any]) -> str:
        if not value.isdecimal():
            return value
        if "uid" in around or "name" in around:
            return self._token(self._revisions, value, "rv")
        return "LIST-RV"

    @staticmethod
    def _token(known: dict[str, str], value: str, prefix: str) -> str:
        return known.setdefault(value, f"{prefix}{len(known) + 1}")
