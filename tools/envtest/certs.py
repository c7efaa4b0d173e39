"""
Certificates for a control plane of one test run.

In: names. Out: PEM files in a folder: an authority, what it signed, and a key pair for service
account tokens. Everything is EC P-256 and lives a day, because nothing here outlives a test run.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


def _write(path: Path, data: bytes, mode: int = 0o644) -> Path:
    path.touch(mode)
    path.write_bytes(data)
    return path


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _subject(name: str, groups: tuple[str, ...]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def _address(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """Signs what one run needs; its files are ``<name>.crt`` and ``<name>.key`` in ``folder``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(f"envtest-{name}", ())
        public = self._key.public_key()
        made = _draft(self._name, self._name, public).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        made = made.add_extension(self._identifier, critical=False)
        cert = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.pair = Pair(
            _write(folder / f"{name}.crt", cert),
            _write(folder / f"{name}.key", _private(self._key), 0o600),
        )

    @property
    def pem(self) -> bytes:
        return self.pair.cert.read_bytes()

    def client(self, user: str, *groups: str) -> Pair:
        """A client certificate: CN is the user, O are the groups."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._issue(user, groups, usage, ())

    def server(self, name: str, *addresses: str) -> Pair:
        """A serving certificate for loopback and ``addresses``."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._issue(name, (), usage, ("127.0.0.1", "localhost", *addresses))

    def _issue(
        self,
        name: str,
        groups: tuple[str, ...],
        usage: x509.ExtendedKeyUsage,
        addresses: tuple[str, ...],
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_subject(name, groups), self._name, key.public_key())
        draft = draft.add_extension(usage, critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
            critical=False,
        )
        if addresses:
            names = x509.SubjectAlternativeName([_address(a) for a in addresses])
            draft = draft.add_extension(names, critical=False)
        cert = draft.sign(self._key, hashes.SHA256())
        stem = name.replace(":", "-").replace("/", "-")
        return Pair(
            _write(self.folder / f"{stem}.crt", cert.public_bytes(serialization.Encoding.PEM)),
            _write(self.folder / f"{stem}.key", _private(key), 0o600),
        )


def token_keys(folder: Path) -> Pair:
    """The key pair that signs service account tokens: ``cert`` is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(_write(folder / "sa.pub", public), _write(folder / "sa.key", _private(key), 0o600))
