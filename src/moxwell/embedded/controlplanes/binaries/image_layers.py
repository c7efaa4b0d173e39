"""
Reads the layers of a container image from a registry (OCI distribution); each has its digest.

The tag names an index or a manifest; everything below it is verified by the SHA-256 that names it.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any, Protocol

from moxwell.errors import Invalid

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}


class Get(Protocol):
    """Reads a URL."""

    async def __call__(self, url: str, headers: Mapping[str, str] | None = None) -> bytes: ...


async def image_layers(get: Get, base: str, tag: str, architecture: str) -> list[bytes]:
    """The layers of an image, the lowest first; ``base`` is ``https://registry/v2/name``."""
    manifest = _parse(await get(f"{base}/manifests/{tag}", ACCEPT))
    if "manifests" in manifest:
        digest = _choose(manifest, architecture)
        manifest = _parse(_verified(await get(f"{base}/manifests/{digest}", ACCEPT), digest))
    layers = []
    for row in manifest.get("layers") or ():
        digest = str(row.get("digest"))
        layers.append(_verified(await get(f"{base}/blobs/{digest}"), digest))
    if not layers:
        raise Invalid(f"{base}:{tag} is not a container image")
    return layers


def find_in_layer(layer: bytes, name: str) -> bytes:
    """A file of a layer by the last part of its path; empty if it is not there."""
    try:
        with tarfile.open(fileobj=io.BytesIO(layer), mode="r:*") as archive:
            for member in archive:
                if member.isfile() and member.name.rpartition("/")[2] == name:
                    found = archive.extractfile(member)
                    return found.read() if found else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Invalid(f"a layer of the image cannot be read: {type(error).__name__}") from error
    return b""


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Invalid("the registry answers with something that is not a manifest")
    return found


def _choose(index: Mapping[str, Any], architecture: str) -> str:
    for row in index["manifests"]:
        platform = row.get("platform") or {}
        if (platform.get("os"), platform.get("architecture")) == ("linux", architecture):
            return str(row["digest"])
    raise Invalid(f"the image does not exist for linux/{architecture}")


def _verified(data: bytes, digest: str) -> bytes:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise Invalid(f"the registry answers with other data than {digest}; nothing was installed")
    return data
