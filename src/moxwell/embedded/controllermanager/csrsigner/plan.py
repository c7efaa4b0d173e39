"""
Whether a CertificateSigningRequest is signed, and its certificate. Pure but for the CA key.

``status.certificate`` is where the certificates API keeps the signer's answer and the kubelet
reads it. It is observed so that a request is signed once; signing again would be harmless.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.runtime.move import Done

Json = Mapping[str, Any]
KUBELET_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
LIFETIME = timedelta(days=365)
CAKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """The decisions on a request, and whether its certificate has been issued."""

    now: datetime
    decisions: frozenset[str] = frozenset()
    issued: bool = False


@dataclass(frozen=True, slots=True)
class SignCertificate:
    """Sign the request and write the certificate into its status."""

    name: str
    request: str = field(repr=False)  # PEM in base64
    now: datetime


def next_move(request: Json, seen: ObservedRequest) -> SignCertificate | Done:
    """Sign an approved request of the kubelet signer; its subject must be a node."""
    approved = "Approved" in seen.decisions and not seen.decisions & {"Denied", "Failed"}
    if request["spec"]["signerName"] != KUBELET_SIGNER or seen.issued or not approved:
        return Done()
    if not _is_node(request["spec"]["request"]):
        return Done()
    return SignCertificate(request["metadata"]["name"], request["spec"]["request"], seen.now)


def _is_node(request: str) -> bool:
    """Whether the subject is exactly one node; an approval by hand does not change that."""
    try:
        subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    except ValueError:
        return False
    names = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    one = len(names) == 1 and names[0].startswith("system:node:")
    return one and groups == ["system:nodes"]


def sign(request: str, ca: x509.Certificate, key: CAKey, now: datetime) -> str:
    """The certificate, as PEM in base64."""
    csr = x509.load_pem_x509_csr(base64.b64decode(request))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(csr.subject)
        .issuer_name(ca.subject)
        .public_key(csr.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(min(now + LIFETIME, ca.not_valid_after_utc))
        .add_extension(usage, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()
