"""Adds a region to the configuration file; other content stays, the file has mode 0600."""

from pathlib import Path
from typing import Any

import yaml

from moxwell import config_file
from moxwell.atomic_file import write_private
from moxwell.config_file import InvalidConfig
from moxwell.pve import config as pve_config

HEAD = "# Regions of Moxwell; contains secrets. `moxwell init` adds one.\n"


def region_entry(
    region: str, url: str, token_id: str, secret: str, fingerprint: str = "", pool: str = ""
) -> dict[str, Any]:
    """The entry of a region; a certificate of a public authority needs no fingerprint."""
    entry = {"region": region, "url": url, "token_id": token_id, "token_secret": secret}
    entry |= {"fingerprint": fingerprint} if fingerprint else {}
    return entry | ({"pool": pool} if pool else {})


def add_region(path: Path, entry: dict[str, Any]) -> None:
    """Add or replace the region's entry; nothing is written if the result would be invalid."""
    tree: Any = {}
    if path.exists():
        tree = config_file.parse_yaml(config_file.read_text(path)) or {}
    clusters = (tree.get("clusters") or []) if isinstance(tree, dict) else None
    if not isinstance(clusters, list) or not all(isinstance(c, dict) for c in clusters):
        raise InvalidConfig(f"{path}: 'clusters' must be a list of regions")
    others = [c for c in clusters if c.get("region") != entry["region"]]
    text = HEAD + yaml.safe_dump({**tree, "clusters": [*others, entry]}, sort_keys=False)
    pve_config.parse(text, read=lambda name: config_file.read_text(path.parent / name))
    write_private(path, text.encode())


def set_control_plane_address(path: Path, address: str) -> bool:
    """Set the address that nodes connect to; False if the file has one already."""
    tree = config_file.parse_mapping(config_file.read_text(path))
    if "control_planes" in tree:
        return False
    tree = {"control_planes": {"address": address}, **tree}
    write_private(path, (HEAD + yaml.safe_dump(tree, sort_keys=False)).encode())
    return True


def known_regions(path: Path) -> tuple[str, ...]:
    """The regions that the file has."""
    if not path.exists():
        return ()
    return tuple(region.region for region in pve_config.load(path, empty=True))
