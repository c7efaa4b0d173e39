"""Fetches the certificate of a Proxmox host before anything is sent to it."""

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from cryptography import x509

from moxwell.errors import Invalid, Unreachable

CONNECT_SECONDS = 10.0
DEFAULT_PORT = 8006


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """The certificate that a server shows; ``trusted`` if the system's authorities signed it."""

    fingerprint: str
    subject: str
    issuer: str
    not_after: str
    trusted: bool

    @property
    def printed(self) -> str:
        """The fingerprint as the Proxmox web interface shows it."""
        text = self.fingerprint.upper()
        return ":".join(text[i : i + 2] for i in range(0, len(text), 2))


def normalized_url(text: str) -> str:
    """A URL with scheme and port, without the path of the API: ``https://pve1:8006``."""
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if parts.scheme != "https" or not parts.hostname or parts.username:
        raise Invalid(f"{text!r} is not a URL such as https://pve1.example.org:8006")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise Invalid(f"{text!r}: the port is not a number up to 65535") from error
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}:{port}"


async def fetch_certificate(url: str) -> ServerCertificate:
    """Connect without sending a request and read the certificate."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORT
    trusted = True
    try:
        data = await _shown(host, port, ssl.create_default_context())
    except ssl.SSLCertVerificationError:
        trusted = False
        data = await _shown(host, port, _unverified())
    try:
        found = x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise Invalid(f"{host}:{port} shows a certificate that cannot be read") from error
    return ServerCertificate(
        hashlib.sha256(data).hexdigest(),
        found.subject.rfc4514_string(),
        found.issuer.rfc4514_string(),
        found.not_valid_after_utc.date().isoformat(),
        trusted,
    )


def _unverified() -> ssl.SSLContext:
    """A context for reading a certificate that no known authority signed; nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _shown(host: str, port: int, context: ssl.SSLContext) -> bytes:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except ssl.SSLCertVerificationError:
        raise
    except (OSError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise Unreachable(f"{host}:{port} does not answer: {why}") from error
    data: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return data
