"""
Reads the objects of the operator's manifests and charts for one tenant.

A file by URL is fetched once; its checksum is the name under which it is kept.
"""

import asyncio
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from moxwell.atomic_file import write_private
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons import charts
from moxwell.embedded.controlplanes.addons.built_in import (
    AddonSettings,
    Download,
    built_in_objects,
)
from moxwell.embedded.controlplanes.addons.objects import Json
from moxwell.embedded.controlplanes.binaries.download import TIMEOUT, get_file
from moxwell.errors import Invalid
from moxwell.yaml_documents import line_of

HELM = "helm"


class ManifestChecksumMismatch(Invalid):
    """A fetched manifest is not the one that the configuration names."""

    reason = "ChecksumMismatch"


@dataclass(frozen=True, slots=True)
class AddonSources:
    """The add-ons of all tenants; ``folder`` keeps fetched files."""

    settings: AddonSettings
    folder: Path

    async def objects(self, spec: HostedControlPlaneSpec, url: str) -> tuple[Json, ...]:
        """All objects of a tenant whose nodes reach the API at ``url``."""
        found = list(built_in_objects(self.settings, spec, url))
        for download in self.settings.downloads:
            found += parse_manifests(await self._fetched(download), download.url)
        facts = charts.tenant_facts(spec, url)
        for chart in self.settings.charts:
            helm = Path(shutil.which(HELM) or HELM)
            found += await charts.render(helm, chart, spec.version, facts)
        return tuple(found)

    async def _fetched(self, download: Download) -> bytes:
        file = self.folder / f"{download.sha256}.yaml"
        if file.exists():
            return await asyncio.to_thread(file.read_bytes)
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            data = await get_file(session, download.url)
        if hashlib.sha256(data).hexdigest() != download.sha256:
            raise ManifestChecksumMismatch(
                f"the SHA-256 of {download.url} is not that of control_planes.addons.manifests: "
                "look at the file, then correct the checksum"
            )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, data)
        return data


def parse_manifests(text: str | bytes, name: str) -> list[Json]:
    """The documents of a file of manifests."""
    try:
        found: list[Any] = [doc for doc in yaml.load_all(text, yaml.CSafeLoader) if doc]
    except yaml.YAMLError as error:
        raise Invalid(f"{name} is not YAML{line_of(error)}") from None
    for doc in found:
        if not isinstance(doc, dict) or not {"apiVersion", "kind", "metadata"} <= set(doc):
            raise Invalid(f"{name}: each document needs apiVersion, kind and metadata")
    return found
