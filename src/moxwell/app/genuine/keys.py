"""
Certificates of a hosted control plane: who signs, who is signed, and when anew. Pure.

In: what there is (PEM) and the time. Out: the same value while nothing is due, else a new one. A
leaf lives a year and is renewed with thirty days left, when it does not name everything it should,
or when somebody else signed it; authorities live ten years and stay, as every node trusts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
BACKDATE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM; the key never prints."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Whom a certificate should prove: a user with groups, or a server with names."""

    user: str
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    client: bool = True


def renewed(kept: Pair | None, leaf: Leaf, signer: Pair, now: datetime) -> Pair:
    """``kept`` itself while it is good, else a new one."""
    if kept is not None and not why_due(kept.certificate, leaf, signer, now):
        return kept
    return issue(leaf, signer, now)


def why_due(certificate: bytes, leaf: Leaf, signer: Pair, now: datetime) -> str:
    """Why a certificate must be made anew; empty: it is good."""
    found = x509.load_pem_x509_certificate(certificate)
    if now > found.not_valid_after_utc - RENEW_BEFORE:
        return "expires"
    if set(leaf.names) - _names_of(found):
        return "names"
    try:
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(signer.certificate))
    except (ValueError, TypeError, InvalidSignature):
        return "signer"
    return ""


def expires(certificate: bytes) -> datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found.value}


def make_authority(name: str, now: datetime) -> Pair:
    """A fresh authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _start(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(leaf: Leaf, signer: Pair, now: datetime) -> Pair:
    """A certificate for a user, a server, or both where it has names and is a client."""
    authority = x509.load_pem_x509_certificate(signer.certificate)
    signing = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in leaf.groups]
    parts += [x509.NameAttribute(NameOID.COMMON_NAME, leaf.user)] if leaf.user else []
    builder = (
        _start(x509.Name(parts), authority.subject, key, now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(leaf)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
    )
    if leaf.names:
        names = x509.SubjectAlternativeName([_general_name(name) for name in leaf.names])
        builder = builder.add_extension(names, critical=not parts)
    return _pair(builder.sign(signing, hashes.SHA256()), key)


def token_keys() -> Pair:
    """What signs service account tokens; the "certificate" is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(public, _pem(key))


def _purposes(leaf: Leaf) -> Sequence[x509.ObjectIdentifier]:
    server = [ExtendedKeyUsageOID.SERVER_AUTH] if leaf.names else []
    return server + ([ExtendedKeyUsageOID.CLIENT_AUTH] if leaf.client else [])


def _start(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
    )


def _usage(*, signs: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))
