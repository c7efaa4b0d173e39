"""
How control planes are reached by name: ``control_planes.sni`` of the configuration file. Pure.

Imports little: commands read the configuration before they start anything.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell import config_file
from moxwell.config_file import InvalidConfig

WHERE = "control_planes.sni"
KEYS = frozenset({"domain", "port"})
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class SniSettings(msgspec.Struct, frozen=True):
    """The domain that leads to the proxy, by a wildcard record, and its port."""

    domain: str
    port: int = 6443


def parse_sni(section: Mapping[str, Any]) -> SniSettings | None:
    """``sni`` of the section ``control_planes``; None if it is not set."""
    found = section.get("sni")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise InvalidConfig(f"{WHERE}: must be a mapping with domain and, optionally, port")
    config_file.refuse_unknown(WHERE, found, KEYS)
    domain, port = str(found.get("domain", "")).lower().strip("."), found.get("port", 6443)
    if not domain or not set(domain) <= _LABEL or ".." in domain:
        raise InvalidConfig(f"{WHERE}.domain: must be a DNS name such as k8s.example.org")
    if not isinstance(port, int) or not 0 < port < 65536:
        raise InvalidConfig(f"{WHERE}.port: must be a port")
    return SniSettings(domain, port)
