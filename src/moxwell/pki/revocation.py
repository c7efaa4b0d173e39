"""
The revocation list of one CA: serial numbers of client certificates that are no longer accepted.

A JSON file beside the CA. The API server looks at it for every request, so that a revocation acts
at once, also on open connections and when another process wrote it. Entries are removed when the
certificate has expired.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from moxwell.atomic_file import write_private
from moxwell.errors import Invalid
from moxwell.pki.certificates import load_certificate

FILE = "revoked.json"


class RevocationListInvalid(Invalid):
    """The revocation list cannot be read, so that nobody can be authenticated by certificate."""

    reason = "RevocationListInvalid"


class RevocationList:
    """Serial numbers by the expiry of their certificates, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None  # modification time and size of the file
        self._expiries: dict[str, datetime] = {}

    def is_revoked(self, serial: int) -> bool:
        """Whether a certificate with this serial number is refused."""
        return f"{serial:x}" in self._load()

    def revoke(self, certificate: bytes, now: datetime) -> None:
        """Refuse a certificate (PEM) from now on."""
        found = load_certificate(certificate)
        kept = {serial: end for serial, end in self._load().items() if end > now}
        kept[f"{found.serial_number:x}"] = found.not_valid_after_utc
        write_private(self._path, msgspec.json.encode(kept))

    def _load(self) -> dict[str, datetime]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._read, self._expiries = None, {}
            return self._expiries
        state = (found.st_mtime_ns, found.st_size)
        if state != self._read:
            try:
                content = self._path.read_bytes()
                self._expiries = msgspec.json.decode(content, type=dict[str, datetime])
            except msgspec.MsgspecError:
                raise RevocationListInvalid(
                    f"{self._path} is not a revocation list: restore it, or remove it to accept"
                    " every certificate that has not expired"
                ) from None
            self._read = state
        return self._expiries
