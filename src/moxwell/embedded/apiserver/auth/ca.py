"""
The store's own certificate authority: kept in a folder, made on first use, files for the owner
alone.

Issues the server's certificate and client certificates (common name: user, organizations:
groups), signs service account tokens with a key of its own, and writes kubeconfigs. No private
key is ever shown by repr.
"""

import base64
import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moxwell.clock import Clock
from moxwell.pki import load_certificate

LIFE = timedelta(days=3650)
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def write_private(path: Path, data: bytes) -> None:
    """A whole file or none, readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """Signs for one store; keys that lie in the folder already may be RSA, ours are P-256."""

    def __init__(self, folder: Path, clock: Clock, name: str = "moxwell") -> None:
        """``name`` is the common name of serving certificates."""
        self._folder, self._clock, self._name = folder, clock, name
        self._pair = self._kept("ca", self._new_ca)
        self._certificate = load_certificate(self._pair.certificate)
        self._key = _load(self._pair.key)
        self._tokens = self._kept_key("tokens.key")

    def __repr__(self) -> str:
        return f"Authority({self._folder})"

    @property
    def certificate(self) -> bytes:
        """The CA's certificate, for clients to trust."""
        return self._pair.certificate

    @property
    def signing_key(self) -> SigningKey:
        """The CA's own key, for whoever signs certificate requests."""
        return self._key

    @property
    def token_key(self) -> SigningKey:
        return self._tokens

    def _kept(self, name: str, make: Callable[[], Pair]) -> Pair:
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        if not (certificate.exists() and key.exists()):
            made = make()
            write_private(key, made.key)
            write_private(certificate, made.certificate)
        return Pair(certificate.read_bytes(), key.read_bytes())

    def _kept_key(self, name: str) -> SigningKey:
        path = self._folder / name
        if not path.exists():
            write_private(path, key_pem(new_key()))
        return _load(path.read_bytes())

    def _new_ca(self) -> Pair:
        key = new_key()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moxwell-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            self._builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return Pair(made.public_bytes(serialization.Encoding.PEM), key_pem(key))

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now: datetime = self._clock.now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LIFE)
        )

    def _issue(
        self,
        subject: list[x509.NameAttribute[str]],
        usage: x509.ObjectIdentifier,
        names: Sequence[str],
    ) -> Pair:
        key = new_key()
        builder = (
            self._builder(x509.Name(subject), self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(_issuer(self._certificate), critical=False)
        )
        if names:
            listed = x509.SubjectAlternativeName([_alternative(name) for name in names])
            builder = builder.add_extension(listed, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        return Pair(made.public_bytes(serialization.Encoding.PEM), key_pem(key))

    def server(self, names: Sequence[str]) -> Pair:
        """A certificate for a server known by these names and addresses."""
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, self._name)]
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A certificate that proves a user."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def write_kubeconfig(self, path: Path, server: str, pair: Pair, name: str = "moxwell") -> None:
        """A kubeconfig with everything in it, for its owner alone."""
        write_private(path, kubeconfig(server, self.certificate, pair, name).encode())


def _load(pem: bytes) -> SigningKey:
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, SigningKey)
    return key


def _issuer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """The identifier the authority itself bears: others compute it otherwise than we do."""
    try:
        found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        public = authority.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def kubeconfig(server: str, ca: bytes, pair: Pair, name: str) -> str:
    """The text of a kubeconfig with one context."""
    user = {
        "client-certificate-data": _coded(pair.certificate),
        "client-key-data": _coded(pair.key),
    }
    cluster = {"server": server, "certificate-authority-data": _coded(ca)}
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "preferences": {},
    }
    return yaml.safe_dump(made, sort_keys=False)


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()
