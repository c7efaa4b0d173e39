"""
Settings of the autoscaler's provider: files and names are those of karpenter-provider-proxmox.

They stand in ``features`` of the configuration file, or come as flags and environment variables,
which take precedence. A file with a mistake is refused at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from moxwell import config_file
from moxwell.config_file import InvalidConfig
from moxwell.controllers.karpenter.proxmox.catalogue import CatalogueSettings
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.scheduling.guest_sizes import read_sizes
from moxwell.scheduling.numa.host_numa import NodePolicy
from moxwell.scheduling.numa.sources import NodeSettings, read_settings

LAST_VMID = 999_999_999
FIRST_VMID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerFiles:
    """Where the settings are; an empty text means the default."""

    instance_types_file: str = ""
    node_setting_file: str = ""
    node_policy: str = ""
    proxmox_vmid: int = 0  # the lowest VMID of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """Instance types, settings of hosts and the lowest VMID, for all scaled clusters."""

    catalogue: CatalogueSettings = field(default_factory=CatalogueSettings)
    hosts: NodeSettings = field(default_factory=dict)
    first_vmid: int = 0

    def machine_defaults(self) -> MachineDefaults:
        """What these settings say about every machine."""
        if not self.first_vmid:
            return MachineDefaults()
        return MachineDefaults({"vmIDRange": {"start": self.first_vmid, "end": LAST_VMID}})


def load(text: str, folder: Path, flags: AutoscalerFiles) -> ProviderSettings:
    """Read the settings; names in the configuration file are relative to its folder."""
    features = config_file.parse_mapping(text).get("features") or {}
    types = flags.instance_types_file or _path(features, "instanceTypesFile", folder)
    hosts = flags.node_setting_file or _path(features, "nodeSettingFile", folder)
    policy = flags.node_policy or str(features.get("nodePolicy") or NodePolicy.SIMPLE)
    if policy not in set(NodePolicy):
        known = ", ".join(NodePolicy)
        raise InvalidConfig(f"node policy: {policy!r} is unknown; use one of {known}")
    vmid = flags.proxmox_vmid or features.get("proxmoxVMID") or 0
    if not isinstance(vmid, int) or (vmid and not FIRST_VMID <= vmid <= LAST_VMID):
        raise InvalidConfig(f"lowest VMID: must be between {FIRST_VMID} and {LAST_VMID}")
    return ProviderSettings(
        catalogue=replace(
            CatalogueSettings(node_policy=NodePolicy(policy)),
            sizes=read_sizes(config_file.read_text(Path(types))) if types else (),
        ),
        hosts=read_settings(config_file.read_text(Path(hosts))) if hosts else {},
        first_vmid=vmid,
    )


def _path(features: Mapping[str, Any], key: str, folder: Path) -> str:
    name = features.get(key) or ""
    if not isinstance(name, str):
        raise InvalidConfig(f"features.{key}: must be the name of a file")
    return str(folder / name) if name else ""
