"""
Certificates for our own webhook server: an authority, what it signs, when to renew.

Pure: keys in, keys out, time passed in. ``renew`` gives back the same value while nothing is due.
A new authority is announced before it is used: for a while the bundle holds the old one and the
new one, so a replica that still serves the old certificate keeps being trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.pki import begin, general_name, pem_of, pem_of_key, usage

AUTHORITY_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM; the key never prints."""

    cert: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept between runs: the authority, what it signed, and whom to trust."""

    authority: Pair
    serving: Pair
    bundle: bytes


def renew(kept: Kept | None, names: Sequence[str], now: datetime) -> Kept:
    """The certificates to use from ``now`` on; ``kept`` itself while nothing is due."""
    if kept is None:
        authority = make_authority("moxwell-webhooks", now)
        return Kept(authority, issue(authority, names, now), authority.cert)
    if is_due(kept.authority.cert, now):
        authority = make_authority("moxwell-webhooks", now)
        return Kept(authority, issue(authority, names, now), authority.cert + kept.authority.cert)
    if is_due(kept.serving.cert, now) or not covers(kept.serving.cert, names):
        return replace(kept, serving=issue(kept.authority, names, now))
    return kept


def check(kept: Kept) -> None:
    """Raise ValueError unless both pairs can be read and belong together."""
    for pair in (kept.authority, kept.serving):
        cert = x509.load_pem_x509_certificate(pair.cert)
        key = serialization.load_pem_private_key(pair.key, None)
        if key.public_key() != cert.public_key():
            raise ValueError("a certificate and its key do not belong together")


def is_due(cert: bytes, now: datetime) -> bool:
    """Whether less than a third of its life is left."""
    read = x509.load_pem_x509_certificate(cert)
    life = read.not_valid_after_utc - read.not_valid_before_utc
    return now > read.not_valid_after_utc - life / 3


def covers(cert: bytes, names: Sequence[str]) -> bool:
    """Whether the certificate is good for all these names."""
    read = x509.load_pem_x509_certificate(cert)
    found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    have = {str(name.value) for name in found}
    return set(names) <= have


def make_authority(name: str, now: datetime) -> Pair:
    """A fresh authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        begin(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    """A serving certificate for these host names and addresses."""
    signer = x509.load_pem_x509_certificate(authority.cert)
    signer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    alternatives = x509.SubjectAlternativeName([general_name(name) for name in names])
    builder = (
        begin(subject, signer.subject, key.public_key(), now, SERVING_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signatures=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(pem_of(cert), pem_of_key(key))
