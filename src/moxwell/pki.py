"""
Certificates: those of others as they are read, and the pieces that all of ours are made of.

Cluster API gives the authorities it makes the serial number zero, which RFC 5280 forbids and the
cryptography library warns of. They are trusted by millions of nodes; so they are read here too.
"""

import warnings
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning

BACKDATE = timedelta(hours=1)  # clocks of a cluster differ


def load_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate of a PEM text."""
    return load_certificates(pem)[0]


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """All certificates of a PEM text; ValueError where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificates(pem)


def begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    """What every certificate has: who, by whom, which key, from when until when."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
    )


def usage(
    *, signatures: bool = False, encipherment: bool = False, authority: bool = False
) -> x509.KeyUsage:
    """What a key may be used for; nothing that is not said."""
    return x509.KeyUsage(
        digital_signature=signatures,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=encipherment,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(name: str) -> x509.GeneralName:
    """An address or a host name, as a certificate holds it."""
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as text, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
