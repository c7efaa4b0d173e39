"""The LimitRanger and ResourceQuota admission plugins, in kube-apiserver's order."""

from typing import Any

from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.quota.limit_ranges import LimitRanger
from moxwell.embedded.apiserver.quota.resource_quotas import ResourceQuotaController
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]


class QuotaAdmission:
    """Applies limit ranges and quotas to writes."""

    def __init__(self, core: ServerContext) -> None:
        self._limits, self._quotas = LimitRanger(core), ResourceQuotaController(core)

    def default(self, call: ApiCall, obj: Object) -> None:
        """Set the limit range defaults of a new object."""
        self._limits.default(call, obj)

    def check(self, call: ApiCall, new: Object, old: Object | None) -> None:
        """Reject an object that violates limit ranges or quotas."""
        self._limits.check(call, new, old)
        self._quotas.check(call, new, old)
