"""
A control plane on a machine: what ``kubeadm init`` in a guest's user data asks for.

In flow the files and commands of a first boot, out flows an :class:`Init`: the identity of the
cluster (its authority and its service account key, which Cluster API writes into the user data),
the address it is to be served at, and the node that does it. The lab serves on loopback only: any
``127.x.y.z`` is a local address on Linux, so each cluster can have its own.
"""

import hashlib
import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import yaml

from moxwell.errors import Invalid
from moxwell.lab.guests.userdata import (
    Instructions,
    Join,
    control_plane_taints,
    has_sentinel,
    kubelet_args,
    read_documents,
)

PKI = "/etc/kubernetes/pki"
MANIFESTS = "/etc/kubernetes/manifests/"
DEFAULT_PORT = 6443
_INIT = re.compile(r"kubeadm\s+init\b[^\n;&|]*--config[ =](\S+)")


class Plane(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's control plane, however many machines it has. Holds private keys."""

    host: str
    port: int
    version: str
    ca: str
    ca_key: str
    service_key: str
    names: tuple[str, ...] = ()
    stacked: bool = True  # etcd runs on the machines; otherwise it is somebody else's

    def __repr__(self) -> str:
        return f"Plane({self.id} at {self.url})"

    @property
    def id(self) -> str:
        """Clusters differ by their authority."""
        return hashlib.sha256(self.ca.encode()).hexdigest()[:16]

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{shown}:{self.port}"


class Host(Protocol):
    """Who serves control planes for guests."""

    async def serve(self, plane: Plane, member: str, /) -> None:
        """Have it served for as long as one of its members wants it; harmless to repeat."""
        ...

    async def leave(self, plane: Plane, member: str, /) -> None:
        """A member stopped; what was written stays."""
        ...

    def keep_only(self, ids: Collection[str], /) -> None:
        """All other control planes have lost their last machine: so have they their data."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """What ``kubeadm init`` was told."""

    plane: Plane
    cluster: str  # the ClusterConfiguration, YAML
    kubelet: str  # the KubeletConfiguration, YAML, or nothing
    tokens: tuple[Mapping[str, Any], ...]
    skipped: frozenset[str]
    node_name: str
    kubelet_args: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    sentinel: bool


def find_init(instructions: Instructions) -> Init | None:
    """The init that the commands ask for; None where they ask for none."""
    script = "\n".join([*instructions.commands, *instructions.files.values()])
    asked = _INIT.search("\n".join(instructions.commands)) or _INIT.search(script)
    if asked is None:
        return None
    path = asked[1].strip("\"'")
    if path not in instructions.files:
        raise Invalid(f"kubeadm init reads {path}, which nobody wrote")
    documents = read_documents(instructions.files[path], path)
    cluster = documents.get("ClusterConfiguration") or {}
    if not cluster:
        raise Invalid(f"{path} holds no ClusterConfiguration")
    return _init(instructions, documents, cluster, sentinel=has_sentinel(instructions))


def _init(
    instructions: Instructions,
    documents: Mapping[str, Any],
    cluster: Mapping[str, Any],
    *,
    sentinel: bool,
) -> Init:
    own = documents.get("InitConfiguration") or {}
    node = own.get("nodeRegistration") or {}
    kubelet = documents.get("KubeletConfiguration")
    plane = make_plane(
        instructions.files,
        str(cluster.get("controlPlaneEndpoint") or ""),
        version=str(cluster.get("kubernetesVersion") or ""),
        names=tuple((cluster.get("apiServer") or {}).get("certSANs") or ()),
        stacked="external" not in (cluster.get("etcd") or {}),
    )
    return Init(
        plane=plane,
        cluster=yaml.safe_dump(dict(cluster), sort_keys=False),
        kubelet=yaml.safe_dump(kubelet) if kubelet else "",
        tokens=tuple(own.get("bootstrapTokens") or ()),
        skipped=frozenset(own.get("skipPhases") or ()),
        node_name=str(node.get("name") or instructions.hostname),
        kubelet_args=kubelet_args(node.get("kubeletExtraArgs")),
        taints=control_plane_taints(node.get("taints")),
        sentinel=sentinel,
    )


def make_plane(
    files: Mapping[str, str],
    endpoint: str,
    *,
    version: str,
    names: tuple[str, ...] = (),
    stacked: bool = True,
) -> Plane:
    """The control plane whose keys lie among ``files``; Invalid says what is not as it must be."""
    host, port = _address(endpoint)
    wanted = {"ca": "ca.crt", "ca_key": "ca.key", "service_key": "sa.key"}
    missing = [f"{PKI}/{name}" for name in wanted.values() if f"{PKI}/{name}" not in files]
    if missing:
        raise Invalid(f"the user data does not bring {', '.join(missing)}")
    keys = {field: files[f"{PKI}/{name}"] for field, name in wanted.items()}
    return Plane(host=host, port=port, version=version, names=names, stacked=stacked, **keys)


def joined_plane(join: Join, files: Mapping[str, str], version: str) -> Plane | None:
    """The control plane that a ``kubeadm join --control-plane`` makes its node part of."""
    if not join.control_plane:
        return None
    external = f"{PKI}/apiserver-etcd-client.crt" in files
    return make_plane(files, join.endpoint, version=version, stacked=not external)


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("https://").rpartition(":")
    if not host or not port.isdigit():
        host, port = endpoint, str(DEFAULT_PORT)
    host = host.strip("[]")
    if host != "localhost" and not _is_loopback(host):
        raise Invalid(
            f"the lab cannot serve a control plane at {host or 'no address'}: "
            "give the cluster an endpoint of loopback, such as 127.1.2.3"
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
