"""
Adds providerID and hostname to a Talos machine configuration. Pure.

The YAML of the Talos bootstrap provider may contain several documents; the one with ``machine`` is
changed, and values set by the user stay. Talos reads addresses from network-config itself.
"""

from typing import Any

import yaml

from moxwell.errors import Invalid


def merge(data: bytes, hostname: str, provider_id: str) -> bytes:
    """The configuration with the kubelet's provider-id and the hostname."""
    documents = _parse(data)
    for document in documents:
        machine = document.get("machine")
        if isinstance(machine, dict):
            kubelet = machine.setdefault("kubelet", {})
            kubelet.setdefault("extraArgs", {}).setdefault("provider-id", provider_id)
            machine.setdefault("network", {}).setdefault("hostname", hostname)
            return yaml.safe_dump_all(documents, sort_keys=False).encode()
    raise Invalid("the bootstrap data says it is Talos but no document has a `machine` section")


def _parse(data: bytes) -> list[dict[str, Any]]:
    try:
        loaded = [d for d in yaml.safe_load_all(data) if d is not None]
    except yaml.YAMLError:  # without the cause: its text would contain keys
        raise Invalid("the bootstrap data says it is Talos but is not YAML") from None
    if not all(isinstance(d, dict) for d in loaded):
        raise Invalid("the bootstrap data says it is Talos but is not a YAML mapping")
    return loaded
