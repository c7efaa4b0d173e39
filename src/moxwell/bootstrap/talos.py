"""
Talos: a machine configuration goes through as it is, with the providerID for the kubelet.

In flows the YAML of the Talos bootstrap provider (it may hold several documents; the one with
``machine`` is meant), out flows the same with ``machine.kubelet.extraArgs.provider-id`` where the
user has set none, and likewise the hostname. Addresses reach Talos through network-config, which
its ``nocloud`` platform reads itself.
"""

from typing import Any

import yaml

from moxwell.errors import Invalid


def merge(data: bytes, hostname: str, provider_id: str) -> bytes:
    """The configuration with the kubelet's provider id."""
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
    except yaml.YAMLError:  # not kept as the cause: its text shows a line with keys
        raise Invalid("the bootstrap data says it is Talos but is not YAML") from None
    if not all(isinstance(d, dict) for d in loaded):
        raise Invalid("the bootstrap data says it is Talos but is not a YAML mapping")
    return loaded
