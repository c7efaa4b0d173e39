"""
Certificates of a hosted control plane: who signs, who is signed, and when anew. Pure.

In: what there is (PEM) and the time. Out: the same value while nothing is due, else a new one. A
leaf lives a year and is renewed with thirty days left, when it does not name everything it should,
or when somebody else signed it; authorities live ten years, and with two years left get ten more
under the same key, as every node trusts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.pki import begin, general_name, pem_of, pem_of_key, usage

AUTHORITY_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
EXTEND_BEFORE = timedelta(days=730)  # a node keeps the certificate it joined with


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
    return _signs_itself(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, now)


def extended(authority: Pair, now: datetime) -> Pair:
    """
    An authority that lives on: the same name and key, and ten years from ``now``.

    Who trusts the old certificate trusts what the new one signs for as long as the old one lives,
    and the other way round; so nobody must change at the same moment as anybody else.
    """
    if now < expires(authority.certificate) - EXTEND_BEFORE:
        return authority
    found = x509.load_pem_x509_certificate(authority.certificate)
    key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return _signs_itself(found.subject, key, now)


def _signs_itself(subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime) -> Pair:
    builder = (
        begin(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage(signatures=True, authority=True), critical=True)
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
        begin(x509.Name(parts), authority.subject, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signatures=True, encipherment=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(leaf)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
    )
    if leaf.names:
        names = x509.SubjectAlternativeName([general_name(name) for name in leaf.names])
        builder = builder.add_extension(names, critical=not parts)
    return _pair(builder.sign(signing, hashes.SHA256()), key)


def token_keys() -> Pair:
    """What signs service account tokens; the "certificate" is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(public, pem_of_key(key))


def _purposes(leaf: Leaf) -> Sequence[x509.ObjectIdentifier]:
    server = [ExtendedKeyUsageOID.SERVER_AUTH] if leaf.names else []
    return server + ([ExtendedKeyUsageOID.CLIENT_AUTH] if leaf.client else [])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(pem_of(certificate), pem_of_key(key))
