"""
Creates, reads and renews keys and X.509 certificates. Pure: PEM and the time in, PEM out.

Our keys are P-256, but for the CA of Talos' API, which must have an Ed25519 key; a CA that somebody
else created may have an RSA key. A leaf is renewed before it expires, when it lacks a name, or when
another CA signed it. A CA is extended under the same name and key, because every node of a cluster
trusts it.
"""

import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.errors import Invalid

BACKDATE = timedelta(hours=1)  # clocks of a cluster differ
CA_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=365)
ADMIN_LIFETIME = timedelta(days=7)  # of what leaves this machine in a kubeconfig
RENEW_LEAF_BEFORE = timedelta(days=30)
EXTEND_CA_BEFORE = timedelta(days=730)  # a node keeps the CA certificate it joined with

OwnKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
CaKey = OwnKey | rsa.RSAPrivateKey
_TALOS_LABEL, _LABEL = b" ED25519 PRIVATE KEY-", b" PRIVATE KEY-"  # of PKCS #8


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (or a public key) and its private key, as PEM; repr omits the private key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateConfig:
    """Subject, names, usages and lifetime of a leaf; one with ``alt_names`` serves TLS."""

    common_name: str
    organizations: tuple[str, ...] = ()
    alt_names: tuple[str, ...] = ()
    client_auth: bool = True
    lifetime: timedelta = LEAF_LIFETIME


# Reading


def load_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate of a PEM text; ValueError if there is none."""
    return load_certificates(pem)[0]


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """
    All certificates of a PEM text; ValueError if there is none.

    Cluster API gives its CAs the serial number zero, which RFC 5280 forbids: accepted here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificates(pem)


def public_key_hash(pem: bytes) -> str:
    """The SHA-256 of the first certificate's public key, which an extended CA keeps."""
    key = load_certificate(pem).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def load_key(pem: bytes) -> SigningKey:
    """A private key; ValueError if it cannot be read, Invalid if it is neither EC nor RSA."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, SigningKey):
        raise Invalid("the private key is neither RSA nor elliptic curve")
    return key


def load_ca_key(pem: bytes) -> CaKey:
    """The private key of a CA, which may be that of Talos; errors as of :func:`load_key`."""
    if _TALOS_LABEL not in pem:
        return load_key(pem)
    key = serialization.load_pem_private_key(pem.replace(_TALOS_LABEL, _LABEL), password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise Invalid("the private key is not the one that its label says")
    return key


def matches(pair: KeyPair) -> bool:
    """Whether the private key belongs to the certificate; ValueError if either is unreadable."""
    return load_ca_key(pair.key).public_key() == load_certificate(pair.certificate).public_key()


def expires(certificate: bytes) -> datetime:
    """When a certificate expires."""
    return load_certificate(certificate).not_valid_after_utc


def alt_names(certificate: bytes) -> set[str]:
    """The DNS names and addresses that a certificate is valid for."""
    extensions = load_certificate(certificate).extensions
    try:
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found.value}


# Creating


def create_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: OwnKey) -> bytes:
    """A private key as PKCS #8 PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def as_talos_key(key: OwnKey) -> bytes:
    """A private key as Talos reads it: SEC 1, or PKCS #8 with a label of its own for Ed25519."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key_pem(key).replace(_LABEL, _TALOS_LABEL)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def create_token_keys() -> KeyPair:
    """The keys of service account tokens; ``certificate`` holds the bare public key."""
    key = create_key()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(public, key_pem(key))


def create_ca(common_name: str, now: datetime) -> KeyPair:
    """A new self-signed CA."""
    return _self_signed(_name(common_name), create_key(), now)


def create_talos_ca(now: datetime) -> KeyPair:
    """A new CA for Talos' API: its nodes request certificates with Ed25519 keys and signatures."""
    key = ed25519.Ed25519PrivateKey.generate()
    pair = _self_signed(_name("", ["talos"]), key, now)
    return KeyPair(pair.certificate, as_talos_key(key))


def extend_ca(ca: KeyPair, now: datetime) -> KeyPair:
    """
    The CA with a later expiry once it has less than two years left; else ``ca`` itself.

    Name and key stay. Clients that trust the old certificate accept leaves of the new one until
    the old one expires, and the other way round.
    """
    if now < expires(ca.certificate) - EXTEND_CA_BEFORE:
        return ca
    key = load_key(ca.key)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "our own CAs have P-256 keys"
    return _self_signed(load_certificate(ca.certificate).subject, key, now)


def issue(
    config: CertificateConfig, ca: KeyPair, now: datetime, lifetime: timedelta | None = None
) -> KeyPair:
    """A new key, and a certificate for it that the CA signed."""
    issuer, signer, key = load_certificate(ca.certificate), load_ca_key(ca.key), create_key()
    subject = _name(config.common_name, config.organizations)
    builder = (
        _builder(subject, issuer.subject, key, now, lifetime or config.lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(key_encipherment=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_extended_usages(config)), critical=False)
        .add_extension(_authority_key_identifier(issuer, signer), critical=False)
    )
    if config.alt_names:
        names = x509.SubjectAlternativeName([_general_name(name) for name in config.alt_names])
        builder = builder.add_extension(names, critical=not config.common_name)
    return _pair(builder.sign(signer, _digest(signer)), key)


# Renewing


def renew(pair: KeyPair | None, config: CertificateConfig, ca: KeyPair, now: datetime) -> KeyPair:
    """``pair`` itself while it is valid for ``config``, else a new one."""
    if pair is not None and not renewal_reason(pair.certificate, config, ca, now):
        return pair
    return issue(config, ca, now)


def renewal_reason(
    certificate: bytes, config: CertificateConfig, ca: KeyPair, now: datetime
) -> str:
    """Why a certificate must be renewed; empty if it need not be."""
    loaded = load_certificate(certificate)
    if now > loaded.not_valid_after_utc - min(RENEW_LEAF_BEFORE, config.lifetime / 2):
        return "expires"
    if loaded.not_valid_after_utc - loaded.not_valid_before_utc > config.lifetime + 2 * BACKDATE:
        return "lifetime"  # a version that gave longer ones wrote it
    if set(config.alt_names) - alt_names(certificate):
        return "names"
    try:
        loaded.verify_directly_issued_by(load_certificate(ca.certificate))
    except (ValueError, TypeError, InvalidSignature):
        return "issuer"
    return ""


# Parts of a certificate


def _digest(key: CaKey) -> hashes.SHA256 | None:
    """The hash of a signature; Ed25519 has its own."""
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _self_signed(name: x509.Name, key: OwnKey, now: datetime) -> KeyPair:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(cert_sign=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(key, _digest(key)), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: OwnKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    if common_name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(parts)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, key_encipherment: bool = False, cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=cert_sign,
        crl_sign=cert_sign,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _extended_usages(config: CertificateConfig) -> list[x509.ObjectIdentifier]:
    server = [ExtendedKeyUsageOID.SERVER_AUTH] if config.alt_names else []
    return server + ([ExtendedKeyUsageOID.CLIENT_AUTH] if config.client_auth else [])


def _authority_key_identifier(
    issuer: x509.Certificate, signer: CaKey
) -> x509.AuthorityKeyIdentifier:
    """The identifier that the CA itself carries; some CAs do not derive it from their key."""
    try:
        found = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _pair(certificate: x509.Certificate, key: OwnKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))
