"""
Reads a NoCloud config drive: an ISO 9660 image with the volume label ``cidata``.

The reader shares no code with the writer in :mod:`moxwell.bootstrap`: it follows the cloud-init
documentation (``user-data``, ``meta-data``, ``network-config``). Raises ``Invalid`` with the
message that a boot log would show.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.errors import Invalid
from moxwell.lab.guests import hardware
from moxwell.lab.guests.hardware import SimulatedVm
from moxwell.lab.guests.iso_reader import read_iso
from moxwell.yaml_documents import line_of

LABELS = ("CIDATA", "CONFIG-2")


@dataclass(frozen=True, slots=True)
class ConfigDrive:
    """The files of a NoCloud datasource, parsed."""

    user_data: str = field(repr=False)  # contains tokens and keys
    meta_data: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hostname(self) -> str:
        """The host name from the meta-data; empty if it sets none."""
        return str(self.meta_data.get("local-hostname") or self.meta_data.get("hostname") or "")


def find_config_drive(vm: SimulatedVm) -> ConfigDrive | None:
    """Read the config drive on the first medium that has one."""
    problem: Invalid | None = None
    for drive in hardware.cdrom_drives(vm.conf):
        medium = vm.media(drive)
        if medium is None:
            continue
        try:
            return read_config_drive(medium)
        except Invalid as error:
            problem = error
    if problem is not None:
        raise problem
    return None


def read_config_drive(image: bytes) -> ConfigDrive:
    """Parse the config drive in an ISO image."""
    files = _files(image)
    if "user-data" not in files:
        raise Invalid("the medium contains no user-data")
    return ConfigDrive(
        files["user-data"].decode(),
        _mapping(files.get("meta-data", b""), "meta-data"),
        _network(_mapping(files.get("network-config", b""), "network-config")),
    )


def _files(image: bytes) -> dict[str, bytes]:
    label, files = read_iso(image)
    if label.upper() not in LABELS:
        raise Invalid(f"the medium is labelled {label.upper()!r}, not cidata")
    return files


def yaml_error(what: str, error: yaml.YAMLError) -> Invalid:
    """An error with the line number but without the line, which may contain a token or a key."""
    return Invalid(f"{what} is not YAML{line_of(error)}")


def _mapping(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        loaded = yaml_documents.load(data) or {}
    except yaml.YAMLError as error:
        raise yaml_error(what, error) from None
    if not isinstance(loaded, dict):
        raise Invalid(f"{what} is not a mapping")
    return loaded


def _network(data: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = data.get("network", data)
    return inner if isinstance(inner, dict) else {}
