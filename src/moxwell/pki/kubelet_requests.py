"""Checks the certificate signing requests of kubelets for client certificates. Pure."""

import base64
from collections.abc import Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

Json = Mapping[str, Any]
KUBELET_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
USAGES = {"digital signature", "client auth", "key encipherment"}
DECISIONS = {"Approved", "Denied", "Failed"}
PREFIX = "system:node:"


def is_undecided(request: Json) -> bool:
    """Whether a request is for the kubelet signer and has no decision."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    decided = any(condition["type"] in DECISIONS for condition in conditions)
    return request["spec"]["signerName"] == KUBELET_SIGNER and not decided


def node_name(spec: Json) -> str:
    """The node in the subject of a request; empty if there is none."""
    try:
        names = _values(_read(spec), NameOID.COMMON_NAME)
    except ValueError:
        return ""
    return names[0].removeprefix(PREFIX) if len(names) == 1 and names[0].startswith(PREFIX) else ""


def denial(spec: Json) -> str:
    """Why a request is denied; empty if it is approved."""
    try:
        csr = _read(spec)
    except ValueError:
        return "the request is not a certificate signing request in PEM"
    name = node_name(spec)
    if _values(csr, NameOID.ORGANIZATION_NAME) != ["system:nodes"] or not name:
        return "the subject must be system:node:NAME of the organization system:nodes"
    if _has_alt_names(csr):
        return "a client certificate of a kubelet has no alternative names"
    if not set(spec.get("usages") or ()) <= USAGES:
        return "the usages of a kubelet certificate are for client authentication only"
    user, groups = spec.get("username", ""), spec.get("groups") or ()
    if "system:bootstrappers" not in groups and user != f"{PREFIX}{name}":
        return "the requester must be a bootstrap token or the node itself"
    return "" if csr.is_signature_valid else "the request is not signed with its own key"


def decision(request: Json, why_not: str, reason: str) -> dict[str, Any]:
    """The change of a request that approves or denies it."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    decided = {
        "type": "Denied" if why_not else "Approved",
        "status": "True",
        "reason": reason,
        "message": why_not or "the request of a node that joins the cluster",
    }
    return {"status": {"conditions": [*conditions, decided]}}


def _read(spec: Json) -> x509.CertificateSigningRequest:
    return x509.load_pem_x509_csr(base64.b64decode(spec["request"]))


def _has_alt_names(csr: x509.CertificateSigningRequest) -> bool:
    oid = x509.SubjectAlternativeName.oid
    return any(extension.oid == oid for extension in csr.extensions)


def _values(csr: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(a.value) for a in csr.subject.get_attributes_for_oid(oid)]
