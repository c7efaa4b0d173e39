"""
The cloud-config of a machine that runs kubeadm, and its bootstrap token Secret. Pure.

The files and commands are those of Cluster API's kubeadm bootstrap provider, in its order, so that
an image built for it works.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moxwell.api.capi.bootstrap import CloudInitUser, File, KubeadmConfig, KubeadmConfigSpec
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import APIEndpoint
from moxwell.embedded.ports import host_port

Json = dict[str, Any]
JOIN_PATH = "/run/kubeadm/kubeadm-join-config.yaml"
INIT_PATH = "/run/kubeadm/kubeadm.yaml"
KUBEADM_API = "kubeadm.k8s.io/v1beta4"
SENTINEL = "/run/cluster-api/bootstrap-success.complete"


def ca_hash(pem: bytes) -> str:
    """The hash of a CA certificate's public key that kubeadm pins."""
    certificate = x509.load_pem_x509_certificate(pem)
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "sha256:" + hashlib.sha256(key).hexdigest()


def join_configuration(
    config: KubeadmConfig, endpoint: APIEndpoint, token: str, hashes: list[str]
) -> Json:
    """The kubeadm JoinConfiguration with endpoint, token and CA hashes of the cluster."""
    join = config.spec.join_configuration
    body: Json = msgspec.to_builtins(join) if join else {}
    given = (body.get("discovery") or {}).get("bootstrapToken") or {}
    body["discovery"] = {
        "bootstrapToken": {
            "apiServerEndpoint": host_port(endpoint.host, endpoint.port),
            "token": token,
            **({} if given.get("unsafeSkipCAVerification") else {"caCertHashes": hashes}),
            **given,
        }
    }
    registration = dict(body.get("nodeRegistration") or {})
    taints = registration.get("taints")
    if body.get("controlPlane") is None and (taints is None or taints):  # a worker
        registration["taints"] = [*(taints or ()), UNINITIALIZED]
    body["nodeRegistration"] = registration
    return {"apiVersion": KUBEADM_API, "kind": "JoinConfiguration"} | body


def init_configuration(config: KubeadmConfig, cluster: Cluster, version: str) -> tuple[Json, Json]:
    """The kubeadm ClusterConfiguration and InitConfiguration of the first machine."""
    given, network = dict(config.spec.cluster_configuration or {}), cluster.spec.cluster_network
    endpoint = cluster.spec.control_plane_endpoint
    networking = dict(given.get("networking") or {})
    if network.pods.cidr_blocks:
        networking.setdefault("podSubnet", ",".join(network.pods.cidr_blocks))
    if network.services.cidr_blocks:
        networking.setdefault("serviceSubnet", ",".join(network.services.cidr_blocks))
    if network.service_domain:
        networking.setdefault("dnsDomain", network.service_domain)
    filled = {
        "clusterName": cluster.name,
        "controlPlaneEndpoint": host_port(endpoint.host, endpoint.port),
        "kubernetesVersion": version,
    }
    head = {"apiVersion": KUBEADM_API, "kind": "ClusterConfiguration"}
    networks = {"networking": networking} if networking else {}
    init = {"apiVersion": KUBEADM_API, "kind": "InitConfiguration"}
    return head | filled | given | networks, init | dict(config.spec.init_configuration or {})


UNINITIALIZED: Mapping[str, str] = {
    "key": "node.cluster.x-k8s.io/uninitialized",
    "effect": "NoSchedule",
}


def join_data(
    spec: KubeadmConfigSpec, join: Json, contents: Mapping[str, str], pki: Mapping[str, str]
) -> str:
    """The user data of a machine that joins; ``pki`` is empty for a worker."""
    command = _command(spec, "join", JOIN_PATH)
    return cloud_config(spec, {**pki, JOIN_PATH: _yaml(join)}, command, contents)


def init_data(
    spec: KubeadmConfigSpec,
    documents: tuple[Json, Json],
    contents: Mapping[str, str],
    pki: Mapping[str, str],
) -> str:
    """The user data of the machine that creates the cluster."""
    text = "---\n".join(map(_yaml, documents))
    command = _command(spec, "init", INIT_PATH)
    return cloud_config(spec, {**pki, INIT_PATH: text}, command, contents)


def cloud_config(
    spec: KubeadmConfigSpec,
    generated: Mapping[str, str],
    command: str,
    contents: Mapping[str, str],
) -> str:
    """
    The user data.

    ``generated`` are files by path; ``contents`` holds, by path, the contents of files of the
    spec that come from Secrets.
    """
    placeholder = "This placeholder file is used to create the /run/cluster-api sub directory\n"
    written = {**generated, "/run/cluster-api/placeholder": placeholder}
    files = [_file(f, contents) for f in spec.files]
    files += [_private_file(path, text) for path, text in written.items()]
    commands = [*spec.pre_kubeadm_commands, command, *spec.post_kubeadm_commands]
    config: Json = {"write_files": files, "runcmd": commands}
    if spec.boot_commands:
        config["bootcmd"] = list(spec.boot_commands)
    if spec.users:
        config["users"] = [_user(u) for u in spec.users]
    if spec.ntp is not None:
        config["ntp"] = {
            "enabled": spec.ntp.enabled is not False,
            "servers": list(spec.ntp.servers),
        }
    if spec.mounts:
        config["mounts"] = [list(m) for m in spec.mounts]
    if spec.disk_setup:
        config |= dict(spec.disk_setup)
    return f"## template: jinja\n#cloud-config\n\n{_yaml(config)}"


def _yaml(tree: Json) -> str:
    text: str = yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, width=4096)
    return text


def _command(spec: KubeadmConfigSpec, verb: str, path: str) -> str:
    verbose = f" --v {spec.verbosity}" if spec.verbosity else ""
    return f"kubeadm {verb} --config {path}{verbose} && echo success > {SENTINEL}"


def _private_file(path: str, text: str) -> Json:
    mode = "0600" if path.endswith(".key") else "0640"
    return {"path": path, "owner": "root:root", "permissions": mode, "content": text}


def _file(file: File, contents: Mapping[str, str]) -> Json:
    row: Json = {"path": file.path, "content": contents.get(file.path, file.content)}
    row |= {"owner": file.owner} if file.owner else {}
    row |= {"permissions": file.permissions} if file.permissions else {}
    row |= {"encoding": file.encoding} if file.encoding else {}
    return row | ({"append": True} if file.append else {})


def _user(user: CloudInitUser) -> Json:
    names = {
        "gecos": user.gecos,
        "groups": user.groups,
        "homedir": user.home_dir,
        "shell": user.shell,
        "passwd": user.passwd,
        "primary_group": user.primary_group,
        "sudo": user.sudo,
        "ssh_authorized_keys": list(user.ssh_authorized_keys),
    }
    row: Json = {"name": user.name} | {key: value for key, value in names.items() if value}
    if user.lock_password is not None:
        row["lock_passwd"] = user.lock_password
    return row
