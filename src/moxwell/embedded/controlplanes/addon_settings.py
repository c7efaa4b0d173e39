"""``control_planes.addons`` of the configuration file: which add-ons tenants on binaries get."""

from pathlib import Path
from typing import Any

import yaml

from moxwell import config_file
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes.binaries.addons import REPOSITORY, AddonSettings

WHERE = "control_planes.addons"
KEYS = frozenset({"kube_proxy", "coredns", "image_repository", "manifests"})
Json = dict[str, Any]


def load_addons(path: Path) -> AddonSettings:
    """The settings, with the manifests that they name relative to the file."""
    section = config_file.parse_mapping(config_file.read_text(path)).get("control_planes") or {}
    found = section.get("addons") if isinstance(section, dict) else None
    if found is None:
        return AddonSettings()
    if not isinstance(found, dict):
        raise InvalidConfig(f"{WHERE}: must be a mapping")
    config_file.refuse_unknown(WHERE, found, KEYS)
    files = found.get("manifests") or []
    if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise InvalidConfig(f"{WHERE}.manifests: must be a list of files")
    return AddonSettings(
        kube_proxy=config_file.parse_flag(f"{WHERE}.kube_proxy", found.get("kube_proxy")),
        coredns=config_file.parse_flag(f"{WHERE}.coredns", found.get("coredns")),
        image_repository=str(found.get("image_repository") or REPOSITORY).rstrip("/"),
        manifests=tuple(doc for name in files for doc in _documents(path.parent / name)),
    )


def _documents(path: Path) -> list[Json]:
    try:
        found = [doc for doc in yaml.safe_load_all(config_file.read_text(path)) if doc]
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{path} is not YAML{config_file.line_of(error)}") from None
    for doc in found:
        if not isinstance(doc, dict) or not {"apiVersion", "kind", "metadata"} <= set(doc):
            raise InvalidConfig(f"{path}: each document needs apiVersion, kind and metadata")
    return found
