"""
A certificate authority and a server certificate, made on the spot.
"""

import hashlib
import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in a folder, and what a client may pin."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    def fingerprint(self) -> str:
        """SHA-256 of the server certificate, as PVE shows it."""
        first = x509.load_pem_x509_certificate(self.server.read_bytes())
        raw = hashlib.sha256(first.public_bytes(serialization.Encoding.DER)).hexdigest().upper()
        return ":".join(raw[i : i + 2] for i in range(0, len(raw), 2))

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.server)
        return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
    )


def make(
    folder: Path, now: datetime, names: tuple[str, ...] = ("localhost", "127.0.0.1")
) -> Certificates:
    """Write ca.pem and server.pem (with its key) unless they are there."""
    made = Certificates(folder)
    if made.server.exists() and made.ca.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = "Moxwell simulated Proxmox CA"
    ca = (
        _builder(authority, authority, ca_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    alternatives = [_alternative(name) for name in names]
    server = (
        _builder(names[0], authority, key, now)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    made.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made.server.touch(mode=0o600)
    made.server.write_bytes(server.public_bytes(serialization.Encoding.PEM) + private)
    return made


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
