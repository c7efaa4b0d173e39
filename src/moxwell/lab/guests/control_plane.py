"""
Control planes that ``kubeadm init`` and ``kubeadm join --control-plane`` create on guests.

Finds the kubeadm invocation in the user-data and derives a :class:`GuestControlPlane`: the CA and
the service account key that Cluster API writes into the user-data, and the endpoint to serve at.
The endpoint must be a loopback address: Linux accepts all of ``127.0.0.0/8``, so each cluster can
have its own.
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
    KubeadmJoin,
    ParsedUserData,
    control_plane_taints,
    has_sentinel,
    kubeadm_config,
    kubelet_args,
    read_documents,
)

PKI = "/etc/kubernetes/pki"
MANIFESTS = "/etc/kubernetes/manifests/"
DEFAULT_PORT = 6443
_INIT = re.compile(r"kubeadm\s+init\b")


class GuestControlPlane(msgspec.Struct, frozen=True, kw_only=True):
    """The control plane of one workload cluster, on one or more guests. Contains private keys."""

    host: str
    port: int
    version: str
    ca: str
    ca_key: str
    service_key: str
    names: tuple[str, ...] = ()
    stacked: bool = True  # etcd runs on the control plane nodes; otherwise it is external

    def __repr__(self) -> str:
        return f"GuestControlPlane({self.id} at {self.url})"

    @property
    def id(self) -> str:
        """Identifies the cluster by the digest of its CA certificate."""
        return hashlib.sha256(self.ca.encode()).hexdigest()[:16]

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{shown}:{self.port}"


class ControlPlaneServer(Protocol):
    """Serves the API servers of control planes that run on guests."""

    async def serve(self, control_plane: GuestControlPlane, member: str, /) -> None:
        """Serve the API until the last member is released; idempotent."""
        ...

    async def release(self, control_plane: GuestControlPlane, member: str, /) -> None:
        """Release one member; the data of the API server is kept."""
        ...

    def keep_only(self, ids: Collection[str], /) -> None:
        """Delete the data of all other control planes: none of their guests exists any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeadmInit:
    """The kubeadm configuration of a ``kubeadm init``."""

    control_plane: GuestControlPlane
    cluster: str  # ClusterConfiguration as YAML
    kubelet: str  # KubeletConfiguration as YAML, or empty
    tokens: tuple[Mapping[str, Any], ...]
    skipped: frozenset[str]
    node_name: str
    kubelet_args: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    sentinel: bool


def find_init(user_data: ParsedUserData) -> KubeadmInit | None:
    """Find the ``kubeadm init`` in the user-data; None if there is none."""
    commands = "\n".join(user_data.commands)
    script = "\n".join([commands, *user_data.files.values()])
    path = kubeadm_config(commands, _INIT) or kubeadm_config(script, _INIT)
    if path is None:
        return None
    if path not in user_data.files:
        raise Invalid(f"kubeadm init reads {path}, which the user-data does not write")
    documents = read_documents(user_data.files[path], path)
    cluster = documents.get("ClusterConfiguration") or {}
    if not cluster:
        raise Invalid(f"{path} contains no ClusterConfiguration")
    return _init(user_data, documents, cluster, sentinel=has_sentinel(user_data))


def _init(
    user_data: ParsedUserData,
    documents: Mapping[str, Any],
    cluster: Mapping[str, Any],
    *,
    sentinel: bool,
) -> KubeadmInit:
    init_config = documents.get("InitConfiguration") or {}
    node = init_config.get("nodeRegistration") or {}
    kubelet = documents.get("KubeletConfiguration")
    control_plane = make_control_plane(
        user_data.files,
        str(cluster.get("controlPlaneEndpoint") or ""),
        version=str(cluster.get("kubernetesVersion") or ""),
        names=tuple((cluster.get("apiServer") or {}).get("certSANs") or ()),
        stacked="external" not in (cluster.get("etcd") or {}),
    )
    return KubeadmInit(
        control_plane=control_plane,
        cluster=yaml.safe_dump(dict(cluster), sort_keys=False),
        kubelet=yaml.safe_dump(kubelet) if kubelet else "",
        tokens=tuple(init_config.get("bootstrapTokens") or ()),
        skipped=frozenset(init_config.get("skipPhases") or ()),
        node_name=str(node.get("name") or user_data.hostname),
        kubelet_args=kubelet_args(node.get("kubeletExtraArgs")),
        taints=control_plane_taints(node.get("taints")),
        sentinel=sentinel,
    )


def make_control_plane(
    files: Mapping[str, str],
    endpoint: str,
    *,
    version: str,
    names: tuple[str, ...] = (),
    stacked: bool = True,
) -> GuestControlPlane:
    """Build the control plane from the keys in ``files``; raises Invalid if one is missing."""
    host, port = _address(endpoint)
    wanted = {"ca": "ca.crt", "ca_key": "ca.key", "service_key": "sa.key"}
    missing = [f"{PKI}/{name}" for name in wanted.values() if f"{PKI}/{name}" not in files]
    if missing:
        raise Invalid(f"the user-data does not contain {', '.join(missing)}")
    keys = {field: files[f"{PKI}/{name}"] for field, name in wanted.items()}
    return GuestControlPlane(
        host=host, port=port, version=version, names=names, stacked=stacked, **keys
    )


def joined_control_plane(
    join: KubeadmJoin, files: Mapping[str, str], version: str
) -> GuestControlPlane | None:
    """The control plane that a ``kubeadm join --control-plane`` joins; None for a worker."""
    if not join.control_plane:
        return None
    external = f"{PKI}/apiserver-etcd-client.crt" in files
    return make_control_plane(files, join.endpoint, version=version, stacked=not external)


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("https://").rpartition(":")
    if not host or not port.isdigit():
        host, port = endpoint, str(DEFAULT_PORT)
    host = host.strip("[]")
    if host != "localhost" and not _is_loopback(host):
        raise Invalid(
            f"the lab cannot serve a control plane at {host or 'no address'}: "
            "the endpoint must be a loopback address, such as 127.1.2.3"
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
