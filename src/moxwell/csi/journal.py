"""
The driver's journal: facts about volumes that neither Proxmox nor Kubernetes stores.

These are sizes and attributes of volumes that were changed while detached (Proxmox can change only
disks of guests), and copies and helper VMs in progress. An entry is a small map under a key, kept
in a ConfigMap, or in a file without Kubernetes. It is written before the effect or the response
that it stands for. Entries that earlier versions stored under other names are still read.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moxwell.api.kinds import Resource
from moxwell.atomic_file import write_private
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LABEL = "csi.moxwell.dev/journal"
NAME_PREFIX, OLD_NAME_PREFIX = "csi-journal-", "csi-book-"
HELPER_VM_KEY, OLD_HELPER_VM_KEY = "helper-vm:", "birth:"
JournalEntry = Mapping[str, str]


class VolumeJournal(Protocol):
    """Stores small maps by key, so that they survive a restart of the driver."""

    async def get(self, key: str) -> dict[str, str]:
        """The entry of a key; empty if there is none."""
        ...

    async def put(self, key: str, entry: JournalEntry) -> None: ...

    async def delete(self, key: str) -> None: ...


def old_key(key: str) -> str:
    """The key under which earlier versions stored the entry of a key."""
    if key.startswith(HELPER_VM_KEY):
        return OLD_HELPER_VM_KEY + key.removeprefix(HELPER_VM_KEY)
    return key


def current_key(key: str) -> str:
    """The key of an entry that was stored under a key of this or an earlier version."""
    if key.startswith(OLD_HELPER_VM_KEY):
        return HELPER_VM_KEY + key.removeprefix(OLD_HELPER_VM_KEY)
    return key


class MemoryJournal:
    """Keeps entries in memory, and in a file if one is given."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries: dict[str, dict[str, str]] = {}
        if file is not None and file.exists():
            stored = json.loads(file.read_text())
            self._entries = {current_key(key): entry for key, entry in stored.items()}

    async def get(self, key: str) -> dict[str, str]:
        return dict(self._entries.get(key, {}))

    async def put(self, key: str, entry: JournalEntry) -> None:
        self._entries[key] = dict(entry)
        self._save()

    async def delete(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._save()

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def _save(self) -> None:
        if self._file is not None:
            write_private(self._file, json.dumps(self._entries, sort_keys=True).encode())


class ConfigMapJournal:
    """Keeps one ConfigMap per entry; also reads and deletes ConfigMaps of earlier versions."""

    def __init__(self, kube: Kube, namespace: str, driver: str) -> None:
        self._kube, self._namespace, self._driver = kube, namespace, driver

    def _name(self, key: str) -> str:
        return NAME_PREFIX + self._hash(key)

    def _old_name(self, key: str) -> str:
        return OLD_NAME_PREFIX + self._hash(old_key(key))

    def _hash(self, key: str) -> str:
        return hashlib.sha256(f"{self._driver}:{key}".encode()).hexdigest()[:20]

    async def get(self, key: str) -> dict[str, str]:
        found = await self._read(self._name(key), key)
        return found or await self._read(self._old_name(key), old_key(key))

    async def _read(self, name: str, key: str) -> dict[str, str]:
        found = await self._kube.find(CONFIG_MAPS, name, self._namespace)
        data = (found or {}).get("data") or {}
        return json.loads(data["entry"]) if data.get("key") == key else {}

    async def put(self, key: str, entry: JournalEntry) -> None:
        data = {"key": key, "entry": json.dumps(dict(entry), sort_keys=True)}
        meta = {"name": self._name(key), "namespace": self._namespace, "labels": {LABEL: "entry"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        try:
            await self._kube.create(body, CONFIG_MAPS)
        except AlreadyExists:
            await self._kube.merge(CONFIG_MAPS, self._name(key), {"data": data}, self._namespace)

    async def delete(self, key: str) -> None:
        for name in (self._old_name(key), self._name(key)):  # the old one must not reappear
            try:
                await self._kube.delete(CONFIG_MAPS, name, self._namespace)
            except NotFound:
                continue
