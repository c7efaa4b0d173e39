"""Creates a CA and a server certificate for the simulator's HTTPS endpoints."""

import hashlib
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from moxwell.atomic_file import write_private
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig

CA_NAME = "Moxwell simulated Proxmox CA"


@dataclass(frozen=True, slots=True)
class SimulatorCertificates:
    """The certificate files in a directory, and the fingerprint for pinning."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    def fingerprint(self) -> str:
        """SHA-256 fingerprint of the server certificate in PVE's notation."""
        certificate = certificates.load_certificate(self.server.read_bytes())
        der = certificate.public_bytes(serialization.Encoding.DER)
        return hashlib.sha256(der).digest().hex(":").upper()

    def context(self) -> ssl.SSLContext:
        """A TLS context for the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context


def make(
    folder: Path, now: datetime, names: tuple[str, ...] = ("localhost", "127.0.0.1")
) -> SimulatorCertificates:
    """Create the files unless they exist; both certificates are valid for ten years."""
    files = SimulatorCertificates(folder)
    if files.server.exists() and files.ca.exists():
        return files
    ca = certificates.create_ca(CA_NAME, now)
    config = CertificateConfig(common_name=names[0], alt_names=names, client_auth=False)
    server = certificates.issue(config, ca, now, certificates.CA_LIFETIME)
    write_private(files.ca, ca.certificate)
    write_private(files.server, server.certificate + server.key)
    return files
