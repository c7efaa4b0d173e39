"""Subresources other than status."""

from collections.abc import Callable
from typing import Any

from moxwell.store import refusals
from moxwell.store.access.rules import Authorizer
from moxwell.store.calls import Call
from moxwell.store.core import Core
from moxwell.store.patching import Patcher
from moxwell.store.removing import Remover
from moxwell.store.writing import Writer

Object = dict[str, Any]
Body = Callable[[Call], tuple[Object, list[str]]]


class Subresources:
    """Answers."""

    def __init__(
        self, core: Core, writer: Writer, patcher: Patcher, remover: Remover, authorizer: Authorizer
    ) -> None:
        self._core, self._writer, self._patcher, self._remover = core, writer, patcher, remover

    def serve(self, call: Call, body: Body) -> tuple[int, Object]:
        raise refusals.no_such_path()
