"""Protobuf bodies of built-in kinds."""

from typing import Any

from moxwell.store import refusals
from moxwell.store.builtin.model import Tables


class Protobuf:
    """Decodes bodies."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def decode(self, body: bytes) -> dict[str, Any]:
        raise refusals.unsupported_media(
            "application/vnd.kubernetes.protobuf", ["application/json"]
        )
