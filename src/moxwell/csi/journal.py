"""
The driver's book: the few things about a volume that neither Proxmox nor Kubernetes keeps for it.

In and out: small maps of texts under a key. What stands there: sizes and attributes that were
promised while a volume was attached to no guest (Proxmox can change neither then), and copies under
way. Kept as ConfigMaps in the driver's namespace, or in a file where there is no Kubernetes.
The surprise: an entry is written before the answer or the effect it stands for, never after.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LABEL = "csi.moxwell.dev/book"
Entry = Mapping[str, str]


class Book(Protocol):
    """Where entries are kept."""

    async def get(self, key: str) -> dict[str, str]: ...

    async def put(self, key: str, entry: Entry) -> None: ...

    async def drop(self, key: str) -> None: ...


class MemoryBook:
    """Kept as long as the process lives; with a file, longer."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries: dict[str, dict[str, str]] = {}
        if file is not None and file.exists():
            self._entries = json.loads(file.read_text())

    async def get(self, key: str) -> dict[str, str]:
        return dict(self._entries.get(key, {}))

    async def put(self, key: str, entry: Entry) -> None:
        self._entries[key] = dict(entry)
        self._save()

    async def drop(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._save()

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def _save(self) -> None:
        if self._file is not None:
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(self._entries, sort_keys=True))
            fresh.rename(self._file)


class KubeBook:
    """One ConfigMap per entry."""

    def __init__(self, kube: Kube, namespace: str, driver: str) -> None:
        self._kube, self._namespace, self._driver = kube, namespace, driver

    def _name(self, key: str) -> str:
        return "csi-book-" + hashlib.sha256(f"{self._driver}:{key}".encode()).hexdigest()[:20]

    async def get(self, key: str) -> dict[str, str]:
        found = await self._kube.find(CONFIG_MAPS, self._name(key), self._namespace)
        data = (found or {}).get("data") or {}
        return json.loads(data["entry"]) if data.get("key") == key else {}

    async def put(self, key: str, entry: Entry) -> None:
        data = {"key": key, "entry": json.dumps(dict(entry), sort_keys=True)}
        meta = {"name": self._name(key), "namespace": self._namespace, "labels": {LABEL: "entry"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        try:
            await self._kube.create(body, CONFIG_MAPS)
        except AlreadyExists:
            await self._kube.merge(CONFIG_MAPS, self._name(key), {"data": data}, self._namespace)

    async def drop(self, key: str) -> None:
        try:
            await self._kube.delete(CONFIG_MAPS, self._name(key), self._namespace)
        except NotFound:
            return
