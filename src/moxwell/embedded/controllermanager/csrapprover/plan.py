"""
Whether a CertificateSigningRequest of a kubelet is approved or denied. Pure.

The conditions of a request are written by whoever decides on it: this controller or a person with
``kubectl certificate approve``. A request that has a decision is left alone.
"""

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from moxwell.embedded.controllermanager.resources import CERTIFICATE_SIGNING_REQUESTS
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = Mapping[str, Any]
KUBELET_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
USAGES = {"digital signature", "client auth", "key encipherment"}
DECISIONS = {"Approved", "Denied", "Failed"}


class CSRReason(StrEnum):
    """Reasons of the Approved and Denied conditions."""

    APPROVED = "AutoApproved"
    DENIED = "NotANode"


def next_move(request: Json, conditions: tuple[Json, ...]) -> WriteMove:
    """Decide on a request of the kubelet signer."""
    decided = any(c["type"] in DECISIONS for c in conditions)
    if request["spec"]["signerName"] != KUBELET_SIGNER or decided:
        return Done()
    why_not = denial(request)
    decision = {
        "type": "Denied" if why_not else "Approved",
        "status": "True",
        "reason": str(CSRReason.DENIED if why_not else CSRReason.APPROVED),
        "message": why_not or "the request of a node that joins the cluster",
    }
    name, change = request["metadata"]["name"], {"status": {"conditions": [*conditions, decision]}}
    merge = Merge(CERTIFICATE_SIGNING_REQUESTS, name, change, subresource="approval")
    return Writes((merge,))


def denial(request: Json) -> str:
    """Why a request is denied; empty if it is approved."""
    spec = request["spec"]
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    except ValueError:
        return "the request is not a certificate signing request in PEM"
    organizations, names = (
        _values(csr, oid) for oid in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME)
    )
    name = names[0] if len(names) == 1 else ""
    if organizations != ["system:nodes"] or not name.startswith("system:node:"):
        return "the subject must be system:node:NAME of the organization system:nodes"
    if _has_alt_names(csr):
        return "a client certificate of a kubelet has no alternative names"
    if not set(spec.get("usages") or ()) <= USAGES:
        return "the usages of a kubelet certificate are for client authentication only"
    user, groups = spec.get("username", ""), spec.get("groups") or ()
    if "system:bootstrappers" not in groups and user != name:
        return "the requester must be a bootstrap token or the node itself"
    return "" if csr.is_signature_valid else "the request is not signed with its own key"


def _has_alt_names(csr: x509.CertificateSigningRequest) -> bool:
    oid = x509.SubjectAlternativeName.oid
    return any(extension.oid == oid for extension in csr.extensions)


def _values(csr: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(a.value) for a in csr.subject.get_attributes_for_oid(oid)]
