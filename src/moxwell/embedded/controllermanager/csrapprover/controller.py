"""The CertificateSigningRequest approver: approves the client certificates of kubelets."""

from typing import Any

from moxwell.embedded.controllermanager.csrapprover.plan import next_move
from moxwell.embedded.controllermanager.resources import CERTIFICATE_SIGNING_REQUESTS
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader

Json = dict[str, Any]
Conditions = tuple[Json, ...]


class CSRApprover(WritingReconciler[Json, Conditions, Json]):
    """Reconciles CertificateSigningRequests; sees the decisions that were made on them."""

    kind = CERTIFICATE_SIGNING_REQUESTS

    async def see(self, request: Json, reader: Reader) -> Conditions:
        return tuple((request.get("status") or {}).get("conditions") or ())

    def plan(self, request: Json, seen: Conditions) -> WriteMove:
        return next_move(request, seen)

    def describe(self, request: Json, seen: Conditions, move: WriteMove) -> None:
        return None
