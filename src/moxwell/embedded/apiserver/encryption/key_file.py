"""
The key file: an EncryptionConfiguration of Kubernetes, in a directory apart from the database.

The first key encrypts, all keys decrypt. A key older than 90 days gets a successor at the next
start, and the stored objects are written again; the old key stays for backups. Mode 0600.
"""

import base64
import binascii
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from moxwell.atomic_file import write_private
from moxwell.errors import Invalid

ROTATE_AFTER = timedelta(days=90)
RESOURCES = ("secrets",)
_STAMP = "%Y%m%dT%H%M%SZ"
_KEY_BYTES = 32


class KeyFileInvalid(Invalid):
    """The key file cannot be used."""

    reason = "InvalidKeyFile"


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key of 256 bits; repr omits it."""

    name: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys, the one that encrypts first, and the resources that are encrypted."""

    keys: tuple[EncryptionKey, ...]
    resources: tuple[str, ...] = RESOURCES

    def find(self, name: str) -> EncryptionKey | None:
        return next((key for key in self.keys if key.name == name), None)


def load_keys(path: Path, now: datetime) -> KeyRing:
    """The keys of a file, which is created if it is missing; a key is added if one is due."""
    ring = _parse(path) if path.exists() else KeyRing(())
    if not ring.keys or _is_due(ring.keys[0], now):
        ring = rotated(ring, now)
        write_keys(path, ring)
    return ring


def rotated(ring: KeyRing, now: datetime) -> KeyRing:
    """The ring with a new first key."""
    key = EncryptionKey(f"key-{now.strftime(_STAMP)}", secrets.token_bytes(_KEY_BYTES))
    return KeyRing((key, *(old for old in ring.keys if old.name != key.name)), ring.resources)


def write_keys(path: Path, ring: KeyRing) -> None:
    """Write the file with mode 0600 in a directory with mode 0700."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    listed = [
        {"name": key.name, "secret": base64.b64encode(key.secret).decode()} for key in ring.keys
    ]
    content = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": list(ring.resources),
                "providers": [{"aesgcm": {"keys": listed}}, {"identity": {}}],
            }
        ],
    }
    write_private(path, yaml.safe_dump(content, sort_keys=False).encode())


def _is_due(key: EncryptionKey, now: datetime) -> bool:
    """Whether a key that was named by us is too old; keys of others are rotated by them."""
    try:
        made = datetime.strptime(key.name, f"key-{_STAMP}").replace(tzinfo=now.tzinfo)
    except ValueError:
        return False
    return now - made > ROTATE_AFTER


def _parse(path: Path) -> KeyRing:
    try:
        content = yaml.safe_load(path.read_text())
        entry = content["resources"][0]
        listed = next(p["aesgcm"]["keys"] for p in entry["providers"] if "aesgcm" in p)
        keys = tuple(_key(item) for item in listed)
        return KeyRing(keys, tuple(str(name) for name in entry["resources"]))
    except (yaml.YAMLError, LookupError, TypeError, StopIteration, ValueError) as error:
        raise KeyFileInvalid(
            f"{path} is not an EncryptionConfiguration with an aesgcm provider"
            f" ({type(error).__name__}): restore the file, without it no Secret can be read"
        ) from None


def _key(item: Any) -> EncryptionKey:
    try:
        secret = base64.b64decode(item["secret"], validate=True)
    except binascii.Error:
        raise ValueError("base64") from None
    if len(secret) not in (16, 24, 32) or not item["name"] or ":" in item["name"]:
        raise ValueError("key")
    return EncryptionKey(str(item["name"]), secret)
