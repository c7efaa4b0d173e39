"""
Certificates for our own webhook server: an authority, what it signs, when to renew.

Pure: keys in, keys out, time passed in. ``renew`` gives back the same value while nothing is due.
A new authority is announced before it is used: for a while the bundle holds the old one and the
new one, so a replica that still serves the old certificate keeps being trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVING_DAYS = 365
BACKDATE = timedelta(hours=1)  # clocks of a cluster differ


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
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = (
        _start(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
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
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = (
        _start(subject, signer.subject, key, now, SERVING_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def _start(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
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


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(cert.public_bytes(serialization.Encoding.PEM), private)
