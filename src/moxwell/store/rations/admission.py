"""Both rations in the order of a genuine apiserver: limits give and bound, then quotas count."""

from typing import Any

from moxwell.store.calls import Call
from moxwell.store.core import Core
from moxwell.store.rations.limits import Limits
from moxwell.store.rations.quotas import Quotas

Object = dict[str, Any]


class Rations:
    """What the writer asks."""

    def __init__(self, core: Core) -> None:
        self._limits, self._quotas = Limits(core), Quotas(core)

    def default(self, call: Call, obj: Object) -> None:
        """Give a new object what its namespace gives."""
        self._limits.default(call, obj)

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Refuse what its namespace may not have."""
        self._limits.check(call, new, old)
        self._quotas.check(call, new, old)
