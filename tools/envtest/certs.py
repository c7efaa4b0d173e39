"""Certificates for the control planes of one test run: a CA and what it signs, as files."""

import datetime
from dataclasses import dataclass
from pathlib import Path

from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _write(folder: Path, name: str, pair: KeyPair, public: str = "crt") -> Pair:
    files = Pair(folder / f"{name}.{public}", folder / f"{name}.key")
    files.cert.write_bytes(pair.certificate)
    files.key.touch(0o600)
    files.key.write_bytes(pair.key)
    return files


class Authority:
    """Issues certificates; its files are ``<name>.crt`` and ``<name>.key`` in ``folder``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = certificates.create_ca(f"envtest-{name}", _now())
        self.pair = _write(folder, name, self._ca)

    @property
    def pem(self) -> bytes:
        return self.pair.cert.read_bytes()

    def client(self, user: str, *groups: str) -> Pair:
        """A client certificate: CN is the user, O are the groups."""
        return self._issue(CertificateConfig(common_name=user, organizations=groups))

    def server(self, name: str, *addresses: str) -> Pair:
        """A serving certificate for loopback and ``addresses``."""
        names = ("127.0.0.1", "localhost", *addresses)
        config = CertificateConfig(common_name=name, alt_names=names, client_auth=False)
        return self._issue(config)

    def _issue(self, config: CertificateConfig) -> Pair:
        pair = certificates.issue(config, self._ca, _now(), DAY)
        return _write(self.folder, config.common_name.replace(":", "-").replace("/", "-"), pair)


def token_keys(folder: Path) -> Pair:
    """The key pair that signs service account tokens: ``cert`` is the public key."""
    return _write(folder, "sa", certificates.create_token_keys(), "pub")
