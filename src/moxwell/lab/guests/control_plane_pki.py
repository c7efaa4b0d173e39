"""
Certificates that a control plane node signs for itself, because it holds the cluster's key.

As ``kubeadm init`` does for its kubeconfigs: an administrator of the last resort, and the node's
own kubelet. Keys are fresh P-256 keys; what signs is whatever key the cluster has.
"""

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.errors import Invalid
from moxwell.kube.credentials import Fixed, Identity, Secret
from moxwell.kube.kubeconfig import Access
from moxwell.lab.guests.control_plane import Plane
from moxwell.pki import load_certificate

LIFE = timedelta(days=365)


def administrator(plane: Plane, now: datetime) -> Access:
    """The way in that needs no role."""
    return _access(plane, "kubernetes-super-admin", "system:masters", now)


def kubelet(plane: Plane, node: str, now: datetime) -> Access:
    """The way in of a node of this control plane."""
    return _access(plane, f"system:node:{node}", "system:nodes", now)


def _access(plane: Plane, user: str, group: str, now: datetime) -> Access:
    return Access(server=plane.url, ca=plane.ca, credentials=Fixed(issue(plane, user, group, now)))


def issue(plane: Plane, user: str, group: str, now: datetime) -> Identity:
    """A client certificate of the cluster's authority."""
    authority, signer = _loaded(plane)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFE)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    return Identity(certificate=pem, key=Secret(private.decode()))


def _loaded(
    plane: Plane,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]:
    try:
        authority = load_certificate(plane.ca.encode())
        key = serialization.load_pem_private_key(plane.ca_key.encode(), password=None)
    except ValueError as error:
        raise Invalid("the authority in the user data cannot be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise Invalid("the authority's key is neither RSA nor elliptic curve")
    if key.public_key() != authority.public_key():
        raise Invalid("ca.crt and ca.key in the user data do not belong together")
    return authority, key
