"""Keeps key pairs in a folder as ``NAME.crt`` and ``NAME.key``, all 0600, renewed when due."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair, SigningKey
from moxwell.pki.revocation import FILE, RevocationList

Now = Callable[[], datetime]


class CertificateFolder:
    """Key pairs by name; a file whose content stays the same is not written again."""

    def __init__(self, folder: Path, now: Now) -> None:
        self._folder, self._now = folder, now

    def find(self, name: str, public: str = "crt") -> KeyPair | None:
        """The key pair of a name; None if a file is missing. ``public`` is the file extension."""
        certificate, key = self._folder / f"{name}.{public}", self._folder / f"{name}.key"
        if not (certificate.exists() and key.exists()):
            return None
        return KeyPair(certificate.read_bytes(), key.read_bytes())

    def put(self, name: str, pair: KeyPair, public: str = "crt") -> KeyPair:
        """Store a key pair and return it."""
        self.write(f"{name}.key", pair.key)
        self.write(f"{name}.{public}", pair.certificate)
        return pair

    def write(self, name: str, data: bytes) -> None:
        """Store one file."""
        path = self._folder / name
        if not path.exists() or path.read_bytes() != data:
            write_private(path, data)

    def ca(self, name: str, common_name: str) -> KeyPair:
        """A CA, created once and extended under the same key before it expires."""
        found, now = self.find(name), self._now()
        if found is None:
            return self.put(name, certificates.create_ca(common_name, now))
        return self.put(name, certificates.extend_ca(found, now))

    def token_keys(self) -> KeyPair:
        """The keys of service account tokens, ``sa.pub`` and ``sa.key``, created once."""
        return self.find("sa", "pub") or self.put("sa", certificates.create_token_keys(), "pub")

    def leaf(
        self, name: str, config: CertificateConfig, ca: KeyPair, *, rotate: bool = False
    ) -> KeyPair:
        """A certificate that is valid now; ``rotate`` creates a new one in any case."""
        found = None if rotate else self.find(name)
        return self.put(name, certificates.renew(found, config, ca, self._now()))


class CertificateAuthority:
    """
    The CA of one embedded apiserver and its key for service account tokens, kept in a folder.

    The CA and the key are created unless they are in the folder; one of kubeadm may have RSA keys.
    """

    def __init__(self, folder: Path, now: Now, name: str = "moxwell") -> None:
        """``name`` is the common name of serving certificates."""
        self._folder, self._now, self._name = folder, now, name
        files = CertificateFolder(folder, now)
        ca = files.find("ca") or files.put("ca", certificates.create_ca("moxwell-ca", now()))
        self._pair, self._key = ca, certificates.load_key(ca.key)
        self._token_key = self._create_token_key(folder / "tokens.key")

    def __repr__(self) -> str:
        return f"CertificateAuthority({self._folder})"

    @staticmethod
    def _create_token_key(path: Path) -> SigningKey:
        if not path.exists():
            write_private(path, certificates.key_pem(certificates.create_key()))
        return certificates.load_key(path.read_bytes())

    @property
    def certificate(self) -> bytes:
        """The CA's certificate, for clients to trust."""
        return self._pair.certificate

    @property
    def signing_key(self) -> SigningKey:
        """The CA's private key, for the signer of certificate signing requests."""
        return self._key

    @property
    def token_key(self) -> SigningKey:
        """The private key that signs service account tokens."""
        return self._token_key

    def server(self, names: Sequence[str]) -> KeyPair:
        """A certificate for a server with these names and addresses."""
        config = CertificateConfig(
            common_name=self._name,
            alt_names=tuple(names),
            client_auth=False,
            lifetime=certificates.CA_LIFETIME,  # issued anew at every start
        )
        return certificates.issue(config, self._pair, self._now())

    def client(
        self,
        user: str,
        groups: Sequence[str] = (),
        lifetime: timedelta = certificates.LEAF_LIFETIME,
    ) -> KeyPair:
        """A certificate that authenticates a user."""
        return certificates.issue(_client(user, groups, lifetime), self._pair, self._now())

    def administrator(self, current: bytes | None = None) -> KeyPair | None:
        """A certificate of an administrator, for days; None while ``current`` need not change."""
        config = _client("kubernetes-admin", ("system:masters",), certificates.ADMIN_LIFETIME)
        now = self._now()
        if current is not None and not certificates.renewal_reason(
            current, config, self._pair, now
        ):
            return None
        return certificates.issue(config, self._pair, now)

    @property
    def revocations(self) -> RevocationList:
        """The client certificates of this CA that are refused."""
        return RevocationList(self._folder / FILE)

    def revoke(self, certificate: bytes) -> None:
        """Refuse a client certificate of this CA from now on."""
        self.revocations.revoke(certificate, self._now())


def _client(user: str, groups: Sequence[str], lifetime: timedelta) -> CertificateConfig:
    return CertificateConfig(common_name=user, organizations=tuple(groups), lifetime=lifetime)
