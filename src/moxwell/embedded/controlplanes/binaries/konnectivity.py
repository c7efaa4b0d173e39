"""
Konnectivity: kube-apiserver reaches kubelets and pods through agents on the nodes. Pure.

The server (apiserver-network-proxy) runs beside kube-apiserver. Agents on the nodes connect to it,
so that logs, exec and webhooks need no route from this machine to nodes and pods. kube-apiserver
authenticates by a certificate of a CA of its own, agents by the token of their service account.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

Json = dict[str, Any]
Argv = tuple[str, ...]
PROGRAM = "konnectivity-server"
IMAGE = "registry.k8s.io/kas-network-proxy/proxy-agent:v0.34.0"
NAME, NAMESPACE = "konnectivity-agent", "kube-system"
USER, AUDIENCE = "system:konnectivity-server", "system:konnectivity-server"
LOOPBACK = "127.0.0.1"
EGRESS = "egress-selector.yaml"
RBAC = "rbac.authorization.k8s.io"


class KonnectivityPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of the server: of agents, of kube-apiserver, and two of its own."""

    agent: int
    server: int
    admin: int
    health: int


class KonnectivitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The image of the agents, and the address they connect to; empty: the tenant's."""

    image: str = IMAGE
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KonnectivityLayout:
    """Where the server of one tenant runs; ``host`` is the address that agents connect to."""

    folder: Path
    host: str
    ports: KonnectivityPorts
    program: Path
    image: str = IMAGE

    def pki(self, name: str) -> str:
        return str(self.folder / "pki" / name)


def server_flags(layout: KonnectivityLayout) -> Argv:
    """The command line of the server."""
    ports = layout.ports
    return (
        str(layout.program),
        "--mode=http-connect",
        f"--server-bind-address={LOOPBACK}",
        f"--server-port={ports.server}",
        f"--server-cert={layout.pki('konnectivity-server.crt')}",
        f"--server-key={layout.pki('konnectivity-server.key')}",
        f"--server-ca-cert={layout.pki('konnectivity-ca.crt')}",
        f"--agent-bind-address={layout.host}",
        f"--agent-port={ports.agent}",
        f"--cluster-cert={layout.pki('konnectivity-agents.crt')}",
        f"--cluster-key={layout.pki('konnectivity-agents.key')}",
        f"--admin-bind-address={LOOPBACK}",
        f"--admin-port={ports.admin}",
        f"--health-bind-address={LOOPBACK}",
        f"--health-port={ports.health}",
        f"--agent-namespace={NAMESPACE}",
        f"--agent-service-account={NAME}",
        f"--authentication-audience={AUDIENCE}",
        f"--kubeconfig={layout.folder / f'{PROGRAM}.conf'}",
        "--enable-profiling=false",
    )


def egress_configuration(layout: KonnectivityLayout) -> str:
    """The file of kube-apiserver's ``--egress-selector-config-file``."""
    tls = {
        "caBundle": layout.pki("konnectivity-ca.crt"),
        "clientCert": layout.pki("konnectivity-apiserver.crt"),
        "clientKey": layout.pki("konnectivity-apiserver.key"),
    }
    tcp = {"url": f"https://{LOOPBACK}:{layout.ports.server}", "tlsConfig": tls}
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"tcp": tcp}}
    tree = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    return yaml.safe_dump(tree, sort_keys=False)


def tenant_objects(layout: KonnectivityLayout) -> tuple[Json, ...]:
    """What the tenant needs: the agents on all nodes, and the right to check their tokens."""
    meta = {"name": NAME, "namespace": NAMESPACE, "labels": {"k8s-app": NAME}}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
    }
    template = {"metadata": {"labels": {"k8s-app": NAME}}, "spec": _pod(layout)}
    return (
        binding,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": {"k8s-app": NAME}}, "template": template},
        },
    )


def agent_flags(layout: KonnectivityLayout, secrets: str) -> list[str]:
    """The arguments of an agent; ``secrets`` is the folder of its token and of the CA."""
    return [
        f"--proxy-server-host={layout.host}",
        f"--proxy-server-port={layout.ports.agent}",
        f"--ca-cert={secrets}/ca.crt",
        f"--service-account-token-path={secrets}/token",
        "--admin-server-port=8133",
        "--health-server-port=8134",
    ]


def _pod(layout: KonnectivityLayout) -> Json:
    secrets = "/var/run/secrets/tokens"
    token = {"path": "token", "audience": AUDIENCE, "expirationSeconds": 3600}
    ca = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    probe = {"httpGet": {"path": "/healthz", "port": 8134}, "initialDelaySeconds": 15}
    container = {
        "name": NAME,
        "image": layout.image,
        "command": ["/proxy-agent"],
        "args": agent_flags(layout, secrets),
        "livenessProbe": probe,
        "volumeMounts": [{"name": "tokens", "mountPath": secrets, "readOnly": True}],
    }
    sources = [{"serviceAccountToken": token}, {"configMap": ca}]
    return {
        "serviceAccountName": NAME,
        "hostNetwork": True,  # also before a CNI is installed
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "tokens", "projected": {"sources": sources}}],
    }
