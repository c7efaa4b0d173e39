"""
The names, labels and annotations by which the machine of a node claim is found again. Pure.

Names depend on the UID of the claim, so that a repeated launch finds what an earlier one made.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from moxwell.api.capi.core import Machine
from moxwell.api.infra.cpu_placement import CpuPinning, NumaNodeSpec
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP
from moxwell.api.meta import Value
from moxwell.errors import Invalid

CLAIM_UID = "moxwell.dev/nodeclaim-uid"  # label
CLAIM_NAME = "moxwell.dev/nodeclaim"  # annotation: a name may be longer than a label's value
INSTANCE = "moxwell.dev/instance"  # annotation: an InstanceRecord as JSON
CLASS_HASH = f"{PROVIDER_GROUP}/proxmoxnodeclass-hash"
CLASS_HASH_VERSION = f"{PROVIDER_GROUP}/proxmoxnodeclass-hash-version"
HASH_VERSION = "moxwell-v1"  # other versions are not compared, so that a take-over drifts no node
NAME_LIMIT = 63
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class InvalidClaimUid(Invalid):
    """The UID of a node claim cannot be a label value."""

    reason = "InvalidClaim"


class InstanceRecord(Value, frozen=True, kw_only=True):
    """What was chosen for a node claim, stored with its Machine before anything else is made."""

    instance_type: str = msgspec.field(name="instanceType")
    node_class: str = msgspec.field(name="nodeClass")
    class_hash: str = msgspec.field(name="classHash")
    region: str
    host: str
    template: int
    template_host: str = msgspec.field(name="templateHost")
    failure_domain: str = msgspec.field(name="failureDomain", default="")
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, str] = msgspec.field(default_factory=dict)
    overhead: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    cpus: int = 1
    memory_mib: int = msgspec.field(name="memoryMiB", default=512)
    disk_gib: int = msgspec.field(name="diskGiB", default=0)
    sockets: int = 1
    numa_nodes: tuple[NumaNodeSpec, ...] = msgspec.field(name="numaNodes", default=())
    cpu_pinning: CpuPinning | None = msgspec.field(name="cpuPinning", default=None)
    adopted: bool = False  # its guest was made by karpenter-provider-proxmox
    warm_guest: str = msgspec.field(name="warmGuest", default="")  # its ProxmoxMachine
    huge_pages_mib: Literal[0, 2, 1024] = msgspec.field(name="hugePagesMiB", default=0)

    @property
    def image_id(self) -> str:
        """The template, as status fields show it."""
        return f"{self.region}/{self.template_host}/{self.template}"


def guest_name(machine: Machine) -> str:
    """The name of the ProxmoxMachine, the guest and the node of a Machine."""
    ref = machine.spec.infrastructure_ref
    return ref.name if ref else machine.name


def machine_name(cluster: str, claim: str, uid: str) -> str:
    """The name of a claim's Machine, and of its guest and node unless it gets a warm guest."""
    digest = hashlib.sha256(f"{cluster}/{uid}".encode()).hexdigest()[:10]
    stem = re.sub(r"[^a-z0-9-]+", "-", f"{cluster}-{claim}".lower())
    return f"{stem[: NAME_LIMIT - len(digest) - 1].strip('-') or 'node'}-{digest}"


def uid_label(uid: str) -> str:
    """The UID as a label value."""
    if not _LABEL_VALUE.fullmatch(uid):
        raise InvalidClaimUid("the UID of the node claim is not a label value; recreate the claim")
    return uid


def record_of(machine: Machine) -> InstanceRecord | None:
    """The record of a Machine; None if it is missing or unreadable."""
    text = machine.metadata.annotations.get(INSTANCE, "")
    try:
        return msgspec.json.decode(text, type=InstanceRecord) if text else None
    except msgspec.DecodeError:
        return None


def record_text(record: InstanceRecord) -> str:
    return msgspec.json.encode(record, order="sorted").decode()
