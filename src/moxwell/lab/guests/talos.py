"""
Control planes on guests that run Talos.

A machine waits until its API is asked to begin etcd, or until the API of the cluster answers: then
another machine has begun it, and this one joins. All have the same CAs and keys, from the machine
configuration.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from moxwell.bootstrap import kubeadm
from moxwell.bootstrap.talos_access import TalosAccess, TalosBusy
from moxwell.clock import Clock
from moxwell.errors import Invalid, Retryable, Unreachable
from moxwell.kube.client import Kube
from moxwell.lab.guests import control_plane_pki
from moxwell.lab.guests.config_drive import ConfigDrive
from moxwell.lab.guests.control_plane import PKI, GuestControlPlane, make_control_plane
from moxwell.lab.guests.hardware import GuestInterface
from moxwell.lab.guests.join import Dial, NodeKubeconfig
from moxwell.lab.guests.kubeadm_init import write_objects
from moxwell.lab.guests.kubelet import NODES
from moxwell.lab.guests.userdata import TAINTS, talos_document, talos_kubelet_args
from moxwell.pki.certificates import load_certificate

Json = dict[str, Any]
POLL_SECONDS = 2.0
GROUP, BOOTSTRAPPER = "system:bootstrappers:nodes", "system:node-bootstrapper"
ADMINISTRATOR = "os:admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class TalosMember:
    """The part of the machine configuration of a control plane that the lab reads."""

    control_plane: GuestControlPlane
    talos_ca: bytes
    token: str = field(repr=False)
    node_name: str
    kubelet_args: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]


def find_member(drive: ConfigDrive) -> TalosMember | None:
    """The control plane that the user data describes; None if it is something else."""
    document = talos_document(drive.user_data)
    if document is None or document["machine"].get("type") != "controlplane":
        return None
    try:
        return _member(document["machine"], document["cluster"], drive.hostname)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Invalid(f"the Talos machine configuration is incomplete: {error}") from None


def _member(machine: Json, cluster: Json, hostname: str) -> TalosMember:
    keys = {
        f"{PKI}/ca.crt": cluster["ca"]["crt"],
        f"{PKI}/ca.key": cluster["ca"]["key"],
        f"{PKI}/sa.key": cluster["serviceAccount"]["key"],
    }
    files = {path: base64.b64decode(text).decode() for path, text in keys.items()}
    version = str(cluster["apiServer"]["image"]).rpartition(":")[2]
    endpoint = str(cluster["controlPlane"]["endpoint"])
    names = tuple(cluster["apiServer"].get("certSANs") or ())
    allowed = cluster.get("allowSchedulingOnControlPlanes")
    return TalosMember(
        control_plane=make_control_plane(files, endpoint, version=version, names=names),
        talos_ca=base64.b64decode(machine["ca"]["crt"]),
        token=str(cluster["token"]),
        node_name=str((machine.get("network") or {}).get("hostname") or hostname),
        kubelet_args=talos_kubelet_args(machine["kubelet"]),
        taints=() if allowed else TAINTS,
    )


@dataclass(slots=True)
class TalosNode:
    """A running machine; ``etcd`` is set once etcd has data there."""

    member: TalosMember
    etcd: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_etcd(self, dial: Dial, clock: Clock) -> None:
        """Wait until etcd begins here, or runs on another machine."""
        plane = self.member.control_plane
        kube = Kube(dial(control_plane_pki.administrator(plane, clock.now())), manager="talos")
        while not self.etcd.is_set():
            if await _answers(kube):
                self.etcd.set()
            else:
                await clock.sleep(POLL_SECONDS)


async def _answers(kube: Kube) -> bool:
    try:
        await kube.list(NODES)
    except Retryable:
        return False
    return True


async def initialize(member: TalosMember, dial: Dial, clock: Clock) -> NodeKubeconfig:
    """Write what workers need to join, and return the kubeconfig of this node."""
    plane = member.control_plane
    token = {"token": member.token, "groups": [GROUP], "description": "made by Talos"}
    binder = kubeadm.cluster_binding("system-bootstrap-node-bootstrapper", BOOTSTRAPPER, GROUP)
    objects = (kubeadm.token_secret(token), kubeadm.node_bootstrapper(), binder)
    await write_objects(plane, objects, (), dial, clock)
    access = control_plane_pki.kubelet(plane, member.node_name, clock.now())
    return NodeKubeconfig(member.node_name, access)


class TalosNodes:
    """The running Talos control planes of all regions, by their addresses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[str, TalosNode] = {}
        self.begun: list[str] = []  # the nodes that were asked to begin etcd, and did

    @contextmanager
    def running(
        self, drive: ConfigDrive, interfaces: Sequence[GuestInterface], *, joined: bool
    ) -> Iterator[TalosNode | None]:
        """A machine whose API answers meanwhile; None if it is no Talos control plane."""
        member = find_member(drive)
        if member is None:
            yield None
            return
        node = TalosNode(member)
        if joined:
            node.etcd.set()
        found = [a.split("/")[0] for card in interfaces for a in card.addresses]
        self._nodes |= dict.fromkeys(found, node)
        try:
            yield node
        finally:
            for address in found:
                if self._nodes.get(address) is node:
                    del self._nodes[address]

    def dial(self, access: TalosAccess) -> "DialedTalos":
        """Talos' API at an address."""
        return DialedTalos(self, access)

    def begin(self, access: TalosAccess) -> None:
        """Begin etcd on a machine; nothing if it has data."""
        node = self._nodes.get(access.address)
        if node is None:
            raise Unreachable(f"Talos at {access.address} does not answer")
        if not _is_administrator(access, node.member.talos_ca, self._clock.now()):
            raise TalosBusy(f"Talos at {access.address} denies the client certificate")
        if not node.etcd.is_set():
            self.begun.append(node.member.node_name)
            node.etcd.set()


@dataclass(frozen=True, slots=True)
class DialedTalos:
    """A connection to Talos on one machine."""

    nodes: TalosNodes
    access: TalosAccess

    async def bootstrap(self) -> None:
        self.nodes.begin(self.access)


def _is_administrator(access: TalosAccess, ca: bytes, now: datetime) -> bool:
    """Whether both sides have the same CA, and it signed a valid certificate with all rights."""
    client = load_certificate(access.client.certificate)
    try:
        client.verify_directly_issued_by(load_certificate(ca))
    except (ValueError, TypeError, InvalidSignature):
        return False
    roles = client.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    valid = client.not_valid_before_utc <= now <= client.not_valid_after_utc
    return access.ca == ca and valid and ADMINISTRATOR in {str(role.value) for role in roles}
