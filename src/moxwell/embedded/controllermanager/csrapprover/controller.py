"""The CertificateSigningRequest approver: approves the client certificates of kubelets."""

from typing import Any

from moxwell.embedded.controllermanager.csrapprover.plan import next_move
from moxwell.embedded.controllermanager.resources import CERTIFICATE_SIGNING_REQUESTS
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.reader import Reader

Json = dict[str, Any]


class CSRApprover(WritingReconciler[Json, None, Json]):
    """Reconciles CertificateSigningRequests; the request itself holds all that decides."""

    kind = CERTIFICATE_SIGNING_REQUESTS

    async def see(self, request: Json, reader: Reader) -> None:
        return None

    def plan(self, request: Json, seen: None) -> WriteMove:
        return next_move(request)

    def describe(self, request: Json, seen: None, move: WriteMove) -> None:
        return None
