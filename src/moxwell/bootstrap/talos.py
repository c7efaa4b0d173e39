"""
Adds providerID and hostname to a Talos machine configuration. Pure.

The YAML of the Talos bootstrap provider may contain several documents; the one with ``machine`` is
changed, and values set by the user stay. Talos reads addresses from network-config itself.
"""

from typing import Any

from moxwell.bootstrap import talos_documents
from moxwell.errors import Invalid

WHAT = "the bootstrap data says it is Talos but"


def merge(data: bytes, hostname: str, provider_id: str) -> bytes:
    """The configuration with the kubelet's provider-id and the hostname."""
    documents = talos_documents.parse(data, WHAT)
    for document in documents:
        machine = document.get("machine")
        if isinstance(machine, dict):
            arguments = _section(_section(machine, "kubelet"), "extraArgs")
            arguments.setdefault("provider-id", provider_id)
            _section(machine, "network").setdefault("hostname", hostname)
            return talos_documents.as_text(documents).encode()
    raise Invalid(f"{WHAT} no document has a `machine` section")


def _section(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """A mapping below another one, added if it is missing or null."""
    section = parent.get(name)
    if section is None:
        section = parent[name] = {}
    if not isinstance(section, dict):
        raise Invalid(f"{WHAT} its `{name}` is not a mapping")
    return section
