"""Attacks on the database file: Secrets are read, moved or replaced by who has the file only."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from moxwell.embedded.apiserver.encryption.envelope import (
    PREFIX,
    KeyMissing,
    RowEncryption,
    open_encryption,
)
from moxwell.embedded.apiserver.encryption.key_file import (
    ROTATE_AFTER,
    KeyFileInvalid,
    KeyRing,
    load_keys,
    rotated,
)
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = "/api/v1/namespaces/default/secrets"
PLAIN = "aHVudGVyMg=="
ROW = LogRow(7, "secrets", "default/a", False, b'{"data":{"p":"aHVudGVyMg=="}}')


def secret(name: str) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"p": PLAIN}}


def serve(folder: Path, encryption: RowEncryption | None, *names: str) -> list[str]:
    """Start a server on the folder's database, create Secrets, return what it serves."""

    async def main() -> list[str]:
        async with EmbeddedApiServer(
            path=folder / "store.db", clock=LoopClock(), encryption=encryption
        ) as server:
            api = ApiClient(server)
            for name in names:
                assert (await api("POST", SECRETS, secret(name))).status == 201
            listed = (await api("GET", SECRETS)).object["items"]
            return [item["metadata"]["name"] for item in listed if item["data"]["p"] == PLAIN]

    return run_virtual(main())


def stored(folder: Path) -> list[bytes]:
    """The bodies of the current rows of Secrets."""
    with sqlite3.connect(folder / "store.db") as db:
        query = "SELECT key, body FROM log WHERE store = 'secrets' ORDER BY revision"
        found = dict(db.execute(query).fetchall())
    db.close()
    return list(found.values())


def test_the_database_does_not_hold_the_secret(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    assert serve(tmp_path / "db", open_encryption(keys, NOW), "a") == ["a"]
    assert all(body.startswith(PREFIX) for body in stored(tmp_path / "db"))
    assert all(PLAIN.encode() not in file.read_bytes() for file in (tmp_path / "db").glob("*.db*"))
    assert serve(tmp_path / "db", open_encryption(keys, NOW)) == ["a"]
    assert (keys / "encryption.yaml").stat().st_mode & 0o777 == 0o600


def test_plain_text_of_earlier_versions_is_read_and_stored_again(tmp_path: Path) -> None:
    assert serve(tmp_path / "db", None, "a", "b") == ["a", "b"]
    assert all(PLAIN.encode() in body for body in stored(tmp_path / "db"))
    assert serve(tmp_path / "db", open_encryption(tmp_path / "keys", NOW)) == ["a", "b"]
    assert all(body.startswith(PREFIX) for body in stored(tmp_path / "db"))


def test_a_new_key_encrypts_everything_again(tmp_path: Path) -> None:
    first = open_encryption(tmp_path / "keys", NOW)
    assert serve(tmp_path / "db", first, "a") == ["a"]
    later = NOW + ROTATE_AFTER + timedelta(days=1)
    assert serve(tmp_path / "db", open_encryption(tmp_path / "keys", later)) == ["a"]
    ring = load_keys(tmp_path / "keys" / "encryption.yaml", later)
    assert len(ring.keys) == 2
    assert all(b.startswith(PREFIX + ring.keys[0].name.encode()) for b in stored(tmp_path / "db"))
    only_new = RowEncryption(KeyRing(ring.keys[:1]))
    assert serve_without_history(tmp_path / "db", only_new) == ["a"]


def serve_without_history(folder: Path, encryption: RowEncryption) -> list[str]:
    with sqlite3.connect(folder / "store.db") as db:
        bodies = db.execute("SELECT body FROM log WHERE store = 'secrets'").fetchall()
    db.close()
    rows = [ROW._replace(body=body) for (body,) in bodies[-1:]]
    return ["a" for row in rows if PLAIN.encode() in encryption.decrypt(row).body]


def test_without_the_key_nothing_is_served(tmp_path: Path) -> None:
    serve(tmp_path / "db", open_encryption(tmp_path / "keys", NOW), "a")
    with pytest.raises(KeyMissing, match="restore the key file"):
        serve(tmp_path / "db", open_encryption(tmp_path / "other", NOW + timedelta(seconds=1)))


def test_a_row_is_bound_to_its_object() -> None:
    encryption = RowEncryption(rotated(KeyRing(()), NOW))
    sealed = encryption.encrypt(ROW)
    moved = encryption.decrypt(sealed._replace(key="default/mallory"))
    assert moved.body == sealed.body  # it cannot be decoded: the object is damaged
    assert encryption.decrypt(sealed) == ROW


@pytest.mark.parametrize("at", [len(PREFIX) + 22, -1, -20])
def test_a_changed_body_is_not_served(at: int) -> None:
    encryption = RowEncryption(rotated(KeyRing(()), NOW))
    body = bytearray(encryption.encrypt(ROW).body)
    body[at] ^= 1
    assert encryption.decrypt(ROW._replace(body=bytes(body))).body == bytes(body)


def test_other_resources_are_stored_as_they_are() -> None:
    encryption = RowEncryption(rotated(KeyRing(()), NOW))
    row = ROW._replace(group_resource="configmaps")
    assert encryption.encrypt(row) == row


@pytest.mark.parametrize("text", ["", "{}", "resources: []", "[", "resources: [{providers: []}]"])
def test_a_broken_key_file_names_itself(tmp_path: Path, text: str) -> None:
    path = tmp_path / "encryption.yaml"
    path.write_text(text)
    with pytest.raises(KeyFileInvalid, match=r"encryption\.yaml"):
        load_keys(path, NOW)


def test_no_key_is_shown() -> None:
    ring = rotated(KeyRing(()), NOW)
    shown = f"{ring!r} {RowEncryption(ring)!r} {ring.keys[0]}"
    assert repr(ring.keys[0].secret)[2:-1] not in shown
