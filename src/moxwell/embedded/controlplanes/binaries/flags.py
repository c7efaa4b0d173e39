"""
The command line of each control plane program. Pure.

The flags are those of ``kubeadm init`` and of Kamaji's pods. None of them holds a secret: keys,
certificates and kubeconfigs are files. etcd compacts itself (``--etcd-compaction-interval=0``),
because the compaction key is outside of the prefix that a tenant may access.
"""

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries.etcd_members import EtcdMember
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.embedded.controlplanes.binaries.konnectivity import EGRESS, KonnectivityLayout

Argv = tuple[str, ...]
LOOPBACK = "127.0.0.1"
# A server that stops is not ready at once, and answers until the balancer has noticed.
DRAIN = ("--shutdown-delay-duration=3s", "--shutdown-send-retry-after=true")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLayout:
    """Where a tenant's programs run: folder, address, ports and etcd prefix."""

    folder: Path
    host: str
    port: int
    manager_port: int
    scheduler_port: int
    etcd_urls: tuple[str, ...]
    etcd_prefix: str
    konnectivity: KonnectivityLayout | None = None
    replicas: tuple[str, ...] = ()  # addresses of API servers behind a balancer; empty: one, none
    replica_hosts: tuple[str, ...] = ()  # also those of replicas that do not run now

    def pki(self, name: str) -> Path:
        return self.folder / "pki" / name

    def conf(self, name: str) -> Path:
        return self.folder / f"{name}.conf"


def first_address(network: str) -> str:
    """The address of the ``kubernetes`` Service."""
    return str(ip_network(network.split(",")[0])[1])


def node_mask(network: str) -> int:
    """The prefix length of a node's pod CIDR: /24, or a 64th of a small cluster CIDR."""
    length = ip_network(network.split(",")[0]).prefixlen
    return 24 if length <= 18 else min(length + 6, 30)


def apiserver(
    release: Release, spec: HostedControlPlaneSpec, layout: TenantLayout, bind: str = ""
) -> Argv:
    """kube-apiserver; ``bind`` is the address of one of several behind the balancer."""
    local = ip_address(layout.host).is_loopback
    issuer = f"https://kubernetes.default.svc.{spec.cluster_domain}"
    return (
        str(release.apiserver),
        f"--advertise-address={layout.host}",
        f"--bind-address={bind or layout.host}",
        f"--secure-port={layout.port}",
        f"--etcd-servers={','.join(layout.etcd_urls)}",
        f"--etcd-prefix={layout.etcd_prefix.rstrip('/')}",
        "--etcd-compaction-interval=0",
        f"--etcd-cafile={layout.pki('etcd-ca.crt')}",
        f"--etcd-certfile={layout.pki('etcd-client.crt')}",
        f"--etcd-keyfile={layout.pki('etcd-client.key')}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        f"--tls-cert-file={layout.pki('apiserver.crt')}",
        f"--tls-private-key-file={layout.pki('apiserver.key')}",
        f"--kubelet-client-certificate={layout.pki('kubelet-client.crt')}",
        f"--kubelet-client-key={layout.pki('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        *_aggregation(layout),
        f"--service-account-issuer={issuer}",
        f"--service-account-key-file={layout.pki('sa.pub')}",
        f"--service-account-signing-key-file={layout.pki('sa.key')}",
        f"--service-cluster-ip-range={spec.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--allow-privileged=true",
        f"--endpoint-reconciler-type={'none' if local else 'lease'}",  # Endpoints refuse loopback
        "--profiling=false",
        *(DRAIN if bind else ()),
        *_egress(layout),
    )


def _aggregation(layout: TenantLayout) -> Argv:
    """Extension API servers, and webhooks: no kube-proxy runs here that gives Services a route."""
    return (
        "--enable-aggregator-routing=true",
        f"--proxy-client-cert-file={layout.pki('front-proxy-client.crt')}",
        f"--proxy-client-key-file={layout.pki('front-proxy-client.key')}",
        f"--requestheader-client-ca-file={layout.pki('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
    )


def _egress(layout: TenantLayout) -> Argv:
    if layout.konnectivity is None:
        return ()
    return (f"--egress-selector-config-file={layout.folder / EGRESS}",)


def controller_manager(
    release: Release, spec: HostedControlPlaneSpec, layout: TenantLayout
) -> Argv:
    """kube-controller-manager; the cloud controllers run in our process."""
    return (
        str(release.controller_manager),
        *_component(layout, "controller-manager", layout.manager_port),
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={spec.pod_cidr}",
        *_mask(spec.pod_cidr),
        f"--service-cluster-ip-range={spec.service_cidr}",
        f"--cluster-name={spec.key.name}",
        "--cloud-provider=external",
        f"--cluster-signing-cert-file={layout.pki('ca.crt')}",
        f"--cluster-signing-key-file={layout.pki('ca.key')}",
        "--controllers=*,bootstrapsigner,tokencleaner",
        f"--root-ca-file={layout.pki('ca.crt')}",
        f"--service-account-private-key-file={layout.pki('sa.key')}",
        "--use-service-account-credentials=true",
    )


def _mask(network: str) -> Argv:
    if ":" in network:  # the defaults for IPv6 fit
        return ()
    return (f"--node-cidr-mask-size={node_mask(network)}",)


def scheduler(release: Release, layout: TenantLayout) -> Argv:
    """kube-scheduler."""
    return (str(release.scheduler), *_component(layout, "scheduler", layout.scheduler_port))


def _component(layout: TenantLayout, name: str, port: int) -> Argv:
    """The flags of both; without leader election, because one of each runs."""
    conf = layout.conf(name)
    return (
        f"--kubeconfig={conf}",
        f"--authentication-kubeconfig={conf}",
        f"--authorization-kubeconfig={conf}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.pki('component.crt')}",
        f"--tls-private-key-file={layout.pki('component.key')}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        f"--requestheader-client-ca-file={layout.pki('front-proxy-ca.crt')}",
        "--leader-elect=false",
        "--profiling=false",
    )


def etcd(program: Path, folder: Path, member: EtcdMember) -> Argv:
    """A member of etcd with client certificates; clients and peers have different CAs."""
    pki, initial = folder / "pki", member.ports.initial
    return (
        str(program),
        f"--name={member.name}",
        f"--data-dir={folder / f'data{member.suffix}'}",
        f"--listen-client-urls={member.client_url}",
        f"--advertise-client-urls={member.client_url}",
        f"--listen-peer-urls={member.peer_url}",
        f"--initial-advertise-peer-urls={member.peer_url}",
        f"--initial-cluster={initial or f'{member.name}={member.peer_url}'}",
        f"--initial-cluster-state={'existing' if initial else 'new'}",
        "--initial-cluster-token=moxwell",
        "--client-cert-auth=true",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        f"--cert-file={pki / 'server.crt'}",
        f"--key-file={pki / 'server.key'}",
        "--peer-client-cert-auth=true",
        f"--peer-trusted-ca-file={pki / 'peer-ca.crt'}",
        f"--peer-cert-file={pki / 'peer.crt'}",
        f"--peer-key-file={pki / 'peer.key'}",
        "--enable-grpc-gateway=false",  # it does not authenticate by certificate
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    )
