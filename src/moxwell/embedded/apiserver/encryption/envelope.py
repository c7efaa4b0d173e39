"""
Encrypts the bodies of rows between the object encoder and SQLite.

The envelope is like that of KMS v2: a data key per process encrypts the body with AES-GCM, and the
key of the key file encrypts the data key; both are bound to resource and key of the object, so that
a row cannot be moved to another object. Bodies without the prefix are read as they are: rows of
earlier versions, and resources that are not encrypted.
"""

import secrets
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moxwell.embedded.apiserver.encryption.key_file import KeyRing, load_keys
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.errors import Invalid

PREFIX = b"k8s:enc:moxwell:v1:"
_NONCE, _TAG, _DATA_KEY = 12, 16, 32
_WRAPPED = _NONCE + _DATA_KEY + _TAG


class KeyMissing(Invalid):
    """A row was encrypted with a key that the key file does not have."""

    reason = "EncryptionKeyMissing"


class RowEncryption:
    """Encrypts and decrypts rows with the keys of a ring."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._data_key = secrets.token_bytes(_DATA_KEY)
        self._cipher = AESGCM(self._data_key)
        self._unwrapped: dict[bytes, AESGCM] = {}

    def __repr__(self) -> str:
        return f"RowEncryption({self._ring.keys[0].name})"

    def encrypt(self, row: LogRow) -> LogRow:
        """The row as it is stored."""
        if row.group_resource not in self._ring.resources:
            return row
        key, nonce = self._ring.keys[0], secrets.token_bytes(_NONCE)
        wrapped = self._wrap(key.secret)
        sealed = self._cipher.encrypt(nonce, row.body, _bound_to(row))
        head = PREFIX + key.name.encode() + b":"
        return row._replace(body=head + wrapped + nonce + sealed)

    def _wrap(self, secret: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(secret).encrypt(nonce, self._data_key, PREFIX)

    def decrypt(self, row: LogRow) -> LogRow:
        """
        The row as it was written; KeyMissing if its key is not in the file.

        A body that was changed stays encrypted: it cannot be decoded, and the object is damaged.
        """
        if not row.body.startswith(PREFIX):
            return row
        name, _, rest = row.body[len(PREFIX) :].partition(b":")
        wrapped, nonce = rest[:_WRAPPED], rest[_WRAPPED : _WRAPPED + _NONCE]
        try:
            cipher = self._unwrap(name.decode(errors="replace"), wrapped)
            body = cipher.decrypt(nonce, rest[_WRAPPED + _NONCE :], _bound_to(row))
        except (InvalidTag, ValueError):
            return row
        return row._replace(body=body)

    def _unwrap(self, name: str, wrapped: bytes) -> AESGCM:
        known = self._unwrapped.get(wrapped)
        if known is not None:
            return known
        key = self._ring.find(name)
        if key is None:
            raise KeyMissing(
                f"stored Secrets are encrypted with the key {name!r}, which the key file does not"
                " have: restore the key file of this database, or restore a backup with its keys"
            )
        data_key = AESGCM(key.secret).decrypt(wrapped[:_NONCE], wrapped[_NONCE:], PREFIX)
        return self._unwrapped.setdefault(wrapped, AESGCM(data_key))

    def is_current(self, row: LogRow) -> bool:
        """Whether the row is stored as it would be stored now."""
        if row.group_resource not in self._ring.resources:
            return True
        return row.body.startswith(PREFIX + self._ring.keys[0].name.encode() + b":")


def _bound_to(row: LogRow) -> bytes:
    return f"{row.group_resource}/{row.key}".encode()


def open_encryption(folder: Path, now: datetime) -> RowEncryption:
    """The encryption with the keys in a folder, which are created if they are missing."""
    return RowEncryption(load_keys(folder / "encryption.yaml", now))
