"""
The hash of a node class that drift compares. Pure.

Fields that are changed in place (tags, security groups, resource pool) and metadata options do not
count. The hash differs from the one of karpenter-provider-proxmox, and so does its version.
"""

import hashlib

import msgspec
from msgspec import structs

from moxwell.api.karpenter.proxmox import MetadataOptions, ProxmoxNodeClass


def class_hash(node_class: ProxmoxNodeClass) -> str:
    """The hash of the fields that make a node drift."""
    static = structs.replace(
        node_class.spec,
        tags=(),
        security_groups=(),
        resource_pool=None,
        metadata_options=MetadataOptions(),
    )
    text = msgspec.json.encode(msgspec.to_builtins(static), order="sorted")
    return str(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))
