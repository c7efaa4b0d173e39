"""The loop over certificate requests."""

from collections.abc import Sequence
from typing import Any

from cryptography import x509

from moxwell.clock import Clock
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.csrsigner import plan
from moxwell.kube.client import Kube
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]


class Sign:
    """Approves and signs what nodes ask for; leaves every other signer's requests alone."""

    kind = resources.CERTIFICATE_REQUESTS
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(
        self, kube: Kube, clock: Clock, authority: x509.Certificate, key: plan.Key
    ) -> None:
        self._kube, self._clock = kube, clock
        self._authority, self._key = authority, key

    async def reconcile(self, request: Json) -> Outcome[Json]:
        conditions = (request.get("status") or {}).get("conditions") or []
        done = any(c["type"] in {"Denied", "Failed"} for c in conditions)
        signed = (request.get("status") or {}).get("certificate")
        if request["spec"]["signerName"] != plan.SIGNER or done or signed:
            return Outcome(None)
        if not any(c["type"] == "Approved" for c in conditions):
            await self._approve(request, conditions)
            return Outcome(None, again=0.0)
        certificate = plan.sign(request, self._authority, self._key, self._clock.now())
        return Outcome({"certificate": certificate})

    async def _approve(self, request: Json, conditions: list[Json]) -> None:
        why_not = plan.refusal(request)
        verdict = {
            "type": "Denied" if why_not else "Approved",
            "status": "True",
            "reason": "NotANode" if why_not else "AutoApproved",
            "message": why_not or "a node joins with a bootstrap token",
        }
        change = {"status": {"conditions": [*conditions, verdict]}}
        name = request["metadata"]["name"]
        await self._kube.merge(self.kind, name, change, subresource="approval")
