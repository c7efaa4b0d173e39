"""Both rations in the order of a genuine apiserver: limits give and bound, then quotas count."""

from typing import Any

from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.quota.limit_ranges import Limits
from moxwell.embedded.apiserver.quota.resource_quotas import Quotas
from moxwell.embedded.apiserver.request_info import Call

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
