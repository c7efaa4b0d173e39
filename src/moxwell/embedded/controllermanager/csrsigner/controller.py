"""The CertificateSigningRequest signer: issues the client certificates of kubelets."""

from typing import Any

from cryptography import x509

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.csrsigner.plan import (
    CAKey,
    ObservedRequest,
    SignCertificate,
    next_move,
    sign,
)
from moxwell.embedded.controllermanager.resources import CERTIFICATE_SIGNING_REQUESTS
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler

Json = dict[str, Any]
CSRMove = SignCertificate | Done


class CSRSigner(Reconciler[Json, ObservedRequest, CSRMove, Json]):
    """Reconciles CertificateSigningRequests of the kubelet client signer."""

    kind = CERTIFICATE_SIGNING_REQUESTS

    def __init__(self, kube: Kube, clock: Clock, ca: x509.Certificate, key: CAKey) -> None:
        self._kube, self._clock, self._ca, self._key = kube, clock, ca, key

    async def see(self, request: Json, reader: Reader) -> ObservedRequest:
        status = request.get("status") or {}
        decisions = frozenset(c["type"] for c in status.get("conditions") or ())
        return ObservedRequest(self._clock.now(), decisions, bool(status.get("certificate")))

    def plan(self, request: Json, seen: ObservedRequest) -> CSRMove:
        return next_move(request, seen)

    async def act(self, move: CSRMove) -> Any:
        if not isinstance(move, SignCertificate):
            return None
        certificate = sign(move.request, self._ca, self._key, move.now)
        change = {"status": {"certificate": certificate}}
        return await self._kube.merge(self.kind, move.name, change, subresource="status")

    def describe(self, request: Json, seen: ObservedRequest, move: CSRMove) -> None:
        return None
