"""
The cloud-config of a joining worker and its bootstrap token Secret. Pure.

The files and commands are those of Cluster API's kubeadm bootstrap provider, in its order, so that
an image built for it works.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moxwell.api.capi.bootstrap import CloudInitUser, File, KubeadmConfig, KubeadmConfigSpec
from moxwell.api.capi.shared import APIEndpoint
from moxwell.api.meta import parse_time
from moxwell.bootstrap import join_tokens
from moxwell.embedded.ports import host_port

Json = dict[str, Any]
JOIN_PATH = "/run/kubeadm/kubeadm-join-config.yaml"
SENTINEL = "/run/cluster-api/bootstrap-success.complete"
LIFE = timedelta(minutes=15)
GROUPS = "system:bootstrappers:kubeadm:default-node-token"
CLAIM_UID = "moxwell.dev/nodeclaim-uid"  # label of the machines of the autoscaler


def ca_hash(pem: bytes) -> str:
    """The hash of a CA certificate's public key that kubeadm pins."""
    certificate = x509.load_pem_x509_certificate(pem)
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "sha256:" + hashlib.sha256(key).hexdigest()


def token_secret(token: str, now: datetime, config: KubeadmConfig) -> Json:
    """
    The bootstrap token Secret in ``kube-system``; the token is valid for ``LIFE``.

    The token of a machine of the autoscaler is bound to the name of its node, which is that of its
    KubeadmConfig.
    """
    claim = config.metadata.labels.get(CLAIM_UID)
    bound = join_tokens.bound_metadata(config.name, claim) if claim else {}
    short, _, rest = token.partition(".")
    fields = {
        "token-id": short,
        "token-secret": rest,
        "expiration": expiry(now),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": join_tokens.GROUP if bound else GROUPS,
        "description": "token of a machine that joins the cluster",
    }
    data = {name: base64.b64encode(text.encode()).decode() for name, text in fields.items()}
    meta = {"name": f"bootstrap-token-{short}", "namespace": "kube-system"} | bound
    kind = "bootstrap.kubernetes.io/token"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind, "data": data}


def expiry(now: datetime) -> str:
    """When a token that is created or renewed now expires."""
    return (now + LIFE).strftime("%Y-%m-%dT%H:%M:%SZ")


def needs_renewal(token: Json, now: datetime) -> bool:
    """Whether less than half of the lifetime of a token is left."""
    until = base64.b64decode((token.get("data") or {}).get("expiration", "")).decode()
    return not until or parse_time(until) - now < LIFE / 2


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
    if taints is None or taints:
        registration["taints"] = [*(taints or ()), UNINITIALIZED]
    body["nodeRegistration"] = registration
    return {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration"} | body


UNINITIALIZED: Mapping[str, str] = {
    "key": "node.cluster.x-k8s.io/uninitialized",
    "effect": "NoSchedule",
}


def cloud_config(
    spec: KubeadmConfigSpec, join: Json, contents: Mapping[str, str] | None = None
) -> str:
    """The user data; ``contents`` holds, by path, the contents of files that come from Secrets."""
    files = [_file(f, contents or {}) for f in spec.files]
    text = yaml.safe_dump(join, sort_keys=False, width=4096)
    files.append({"path": JOIN_PATH, "owner": "root:root", "permissions": "0640", "content": text})
    placeholder = "This placeholder file is used to create the /run/cluster-api sub directory\n"
    marker = {"path": "/run/cluster-api/placeholder", "owner": "root:root", "permissions": "0640"}
    files.append(marker | {"content": placeholder})
    config: Json = {"write_files": files, "runcmd": _commands(spec)}
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
    body = yaml.safe_dump(config, sort_keys=False, width=4096)
    return f"## template: jinja\n#cloud-config\n\n{body}"


def _commands(spec: KubeadmConfigSpec) -> list[str]:
    verbose = f" --v {spec.verbosity}" if spec.verbosity else ""
    join = f"kubeadm join --config {JOIN_PATH}{verbose} && echo success > {SENTINEL}"
    return [*spec.pre_kubeadm_commands, join, *spec.post_kubeadm_commands]


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
