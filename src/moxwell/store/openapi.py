"""OpenAPI v3 documents."""

from moxwell.api import wire
from moxwell.store.builtin.model import Tables
from moxwell.store.faces import Registry


class OpenApi:
    """Answers schema requests."""

    def __init__(self, registry: Registry, tables: Tables) -> None:
        self._registry, self._tables = registry, tables

    def answer(self, request: wire.Request) -> wire.Response | None:
        return None
