"""
Admission of CertificateSigningRequests: who may approve and sign, and forbidden subjects.

Approving needs the verb ``approve`` on the signer, signing ``sign``; a signer is named itself or by
its domain (``kubernetes.io/*``). A request for a certificate of the group ``system:masters`` is
refused.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes
from moxwell.embedded.apiserver.auth.rbac import MASTERS, Authorizer
from moxwell.embedded.apiserver.hooks import AdmissionAttributes
from moxwell.embedded.apiserver.status_errors import StatusError

Object = Mapping[str, Any]
GROUP = "certificates.k8s.io"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


class CertificateAdmission:
    """Checks writes of CertificateSigningRequests."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, review: AdmissionAttributes) -> None:
        """Raise 403 if the user may not make this write."""
        if (review.group, review.plural) != (GROUP, "certificatesigningrequests"):
            return
        match review.operation, review.subresource:
            case "CREATE", "":
                _check_subject(review)
            case "UPDATE", "approval":
                self._require(review, "approve")
            case "UPDATE", "status":
                if _decided(review.object) != _decided(review.old):
                    self._require(review, "sign")

    def _require(self, review: AdmissionAttributes, verb: str) -> None:
        signer = str(((review.old or {}).get("spec") or {}).get("signerName", ""))
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            asked = AuthorizationAttributes(verb, GROUP, "signers", name=name)
            if self._authorizer.is_allowed(review.user, asked):
                return
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise _no(review, why)


def _decided(request: Object | None) -> tuple[Any, Any]:
    status = (request or {}).get("status") or {}
    return status.get("certificate"), status.get("conditions") or []


def _check_subject(review: AdmissionAttributes) -> None:
    spec = (review.object or {}).get("spec") or {}
    if spec.get("signerName") != CLIENT_SIGNER:
        return
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or "", validate=True))
    except (ValueError, binascii.Error) as error:
        raise _no(review, f"failed to parse CSR: {error}") from None
    groups = [a.value for a in csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if MASTERS in groups:
        raise _no(review, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _no(review: AdmissionAttributes, why: str) -> StatusError:
    return status_errors.forbidden(review.plural, review.group, review.name, why)
