"""``control_planes.addons`` of the configuration file: which add-ons tenants on binaries get."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moxwell import config_file
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes.addons.built_in import (
    IMAGE,
    REPOSITORY,
    AddonSettings,
    Download,
)
from moxwell.embedded.controlplanes.addons.charts import Chart
from moxwell.embedded.controlplanes.addons.objects import Json
from moxwell.embedded.controlplanes.addons.sources import parse_manifests
from moxwell.errors import Invalid

WHERE = "control_planes.addons"
FLAGS = ("coredns", "metrics_server", "csi")
KEYS = frozenset({*FLAGS, "kube_proxy", "cni", "image", "image_repository", "manifests", "charts"})
CHART_KEYS = frozenset({"name", "chart", "namespace", "version", "values"})
CNIS = {"bridge": True, "none": False}
_SHA256 = re.compile(r"[0-9a-f]{64}")


def load_addons(path: Path) -> AddonSettings:
    """The settings, with the manifests that they name relative to the file; all are on."""
    section = config_file.parse_mapping(config_file.read_text(path)).get("control_planes") or {}
    found = section.get("addons") if isinstance(section, dict) else None
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise InvalidConfig(f"{WHERE}: must be a mapping")
    config_file.refuse_unknown(WHERE, found, KEYS)
    proxy = found.get("kube_proxy", True)
    own, downloads = _manifests(found.get("manifests") or [], path.parent)
    flags = {
        name: config_file.parse_flag(f"{WHERE}.{name}", found.get(name, True)) for name in FLAGS
    }
    return AddonSettings(
        **flags,
        kube_proxy=isinstance(proxy, dict) or config_file.parse_flag(f"{WHERE}.kube_proxy", proxy),
        proxy_configuration=proxy if isinstance(proxy, dict) else {},
        cni=_cni(found.get("cni", "bridge")),
        image_repository=str(found.get("image_repository") or REPOSITORY).rstrip("/"),
        image=str(found.get("image") or IMAGE),
        manifests=own,
        downloads=downloads,
        charts=_charts(found.get("charts") or [], path.parent),
    )


def _cni(value: object) -> bool:
    if str(value) not in CNIS:
        raise InvalidConfig(
            f"{WHERE}.cni: must be bridge or none; name other networks under charts or manifests"
        )
    return CNIS[str(value)]


def _manifests(rows: Any, folder: Path) -> tuple[tuple[Json, ...], tuple[Download, ...]]:
    """The objects of files, and the files that are fetched."""
    where = f"{WHERE}.manifests"
    if not isinstance(rows, list) or not all(isinstance(row, str | dict) for row in rows):
        raise InvalidConfig(f"{where}: must be a list of files, or of url and sha256")
    own = [doc for row in rows if isinstance(row, str) for doc in _documents(folder / row)]
    downloads = [_download(where, row) for row in rows if isinstance(row, dict)]
    return tuple(own), tuple(downloads)


def _download(where: str, row: Mapping[str, Any]) -> Download:
    config_file.refuse_unknown(where, row, {"url", "sha256"})
    url, checksum = str(row.get("url") or ""), str(row.get("sha256") or "").lower()
    if not url.startswith(("https://", "http://")) or not _SHA256.fullmatch(checksum):
        raise InvalidConfig(f"{where}: a file by URL needs url (https://…) and sha256 (64 digits)")
    return Download(url=url, sha256=checksum)


def _documents(path: Path) -> list[Json]:
    try:
        return parse_manifests(config_file.read_text(path), str(path))
    except Invalid as error:
        raise InvalidConfig(str(error)) from None


def _charts(rows: Any, folder: Path) -> tuple[Chart, ...]:
    where = f"{WHERE}.charts"
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidConfig(f"{where}: must be a list of name, chart and values")
    return tuple(_chart(where, row, folder) for row in rows)


def _chart(where: str, row: Mapping[str, Any], folder: Path) -> Chart:
    config_file.refuse_unknown(where, row, CHART_KEYS)
    values = row.get("values") or {}
    if not row.get("name") or not row.get("chart") or not isinstance(values, dict):
        raise InvalidConfig(f"{where}: each needs name and chart; values are a mapping")
    chart = str(row["chart"])
    local = folder / chart
    return Chart(
        name=str(row["name"]),
        chart=str(local) if local.exists() else chart,
        namespace=str(row.get("namespace") or "kube-system"),
        version=str(row.get("version") or ""),
        values=values,
    )
