"""Both rations in the order of a genuine apiserver: limits give and bound, then quotas count."""

from typing import Any

from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.quota.limit_ranges import LimitRanger
from moxwell.embedded.apiserver.quota.resource_quotas import ResourceQuotaController
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]


class QuotaAdmission:
    """What the writer asks."""

    def __init__(self, core: ServerContext) -> None:
        self._limits, self._quotas = LimitRanger(core), ResourceQuotaController(core)

    def default(self, call: ApiCall, obj: Object) -> None:
        """Give a new object what its namespace gives."""
        self._limits.default(call, obj)

    def check(self, call: ApiCall, new: Object, old: Object | None) -> None:
        """Refuse what its namespace may not have."""
        self._limits.check(call, new, old)
        self._quotas.check(call, new, old)
