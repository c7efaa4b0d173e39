"""Whether a certificate request may be signed, and the certificate: pure but for the key."""

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Json = Mapping[str, Any]
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
USAGES = {"digital signature", "client auth", "key encipherment"}
LIFE = timedelta(days=365)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def refusal(request: Json) -> str:
    """Why it may not be signed; empty: it may."""
    spec = request["spec"]
    asked = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    organisations = _values(asked, NameOID.ORGANIZATION_NAME)
    name = "".join(_values(asked, NameOID.COMMON_NAME))
    if organisations != ["system:nodes"] or not name.startswith("system:node:"):
        return "a node asks as system:node:NAME of system:nodes"
    if not set(spec.get("usages") or ()) <= USAGES:
        return "a node's certificate is for client authentication only"
    asker, groups = spec.get("username", ""), spec.get("groups") or ()
    if "system:bootstrappers" not in groups and asker != name:
        return "only a bootstrap token or the node itself may ask"
    return "" if asked.is_signature_valid else "the request is not signed by its own key"


def _values(asked: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(a.value) for a in asked.subject.get_attributes_for_oid(oid)]


def sign(request: Json, authority: x509.Certificate, key: Key, now: datetime) -> str:
    """The certificate, as PEM in base64."""
    asked = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(asked.subject)
        .issuer_name(authority.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(min(now + LIFE, authority.not_valid_after_utc))
        .add_extension(usage, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()
