"""
What each program is started with: pure, from a wish and the files that lie ready.

The flags are those of ``kubeadm init`` and of Kamaji's pods. No secret is among them: keys,
certificates and kubeconfigs are files. etcd compacts itself (``--etcd-compaction-interval=0``),
since a tenant's credentials end at its own prefix and the compaction's key lies outside of it.
"""

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Wish
from moxwell.embedded.controlplanes.binaries.installed import Release

Argv = tuple[str, ...]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a tenant's programs sit: folder, addresses, ports and prefix."""

    folder: Path
    host: str
    port: int
    manager_port: int
    scheduler_port: int
    etcd_port: int
    prefix: str

    def pki(self, name: str) -> Path:
        return self.folder / "pki" / name

    def conf(self, name: str) -> Path:
        return self.folder / f"{name}.conf"


def first_address(network: str) -> str:
    """The address of the ``kubernetes`` Service."""
    return str(ip_network(network.split(",")[0])[1])


def node_mask(network: str) -> int:
    """How large a share of the pods' network a node gets: many nodes even in a small one."""
    length = ip_network(network.split(",")[0]).prefixlen
    return 24 if length <= 18 else min(length + 6, 30)


def apiserver(release: Release, wish: Wish, seat: Seat) -> Argv:
    """kube-apiserver."""
    local = ip_address(seat.host).is_loopback
    issuer = f"https://kubernetes.default.svc.{wish.domain}"
    return (
        str(release.apiserver),
        f"--advertise-address={seat.host}",
        f"--bind-address={seat.host}",
        f"--secure-port={seat.port}",
        f"--etcd-servers=https://{LOOPBACK}:{seat.etcd_port}",
        f"--etcd-prefix={seat.prefix.rstrip('/')}",
        "--etcd-compaction-interval=0",
        f"--etcd-cafile={seat.pki('etcd-ca.crt')}",
        f"--etcd-certfile={seat.pki('etcd-client.crt')}",
        f"--etcd-keyfile={seat.pki('etcd-client.key')}",
        f"--client-ca-file={seat.pki('ca.crt')}",
        f"--tls-cert-file={seat.pki('apiserver.crt')}",
        f"--tls-private-key-file={seat.pki('apiserver.key')}",
        f"--kubelet-client-certificate={seat.pki('kubelet-client.crt')}",
        f"--kubelet-client-key={seat.pki('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        f"--proxy-client-cert-file={seat.pki('front-proxy-client.crt')}",
        f"--proxy-client-key-file={seat.pki('front-proxy-client.key')}",
        f"--requestheader-client-ca-file={seat.pki('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--service-account-issuer={issuer}",
        f"--service-account-key-file={seat.pki('sa.pub')}",
        f"--service-account-signing-key-file={seat.pki('sa.key')}",
        f"--service-cluster-ip-range={wish.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--allow-privileged=true",
        f"--endpoint-reconciler-type={'none' if local else 'lease'}",  # loopback is no endpoint
        "--profiling=false",
    )


def manager(release: Release, wish: Wish, seat: Seat) -> Argv:
    """kube-controller-manager: signs for joining nodes; the cloud's part is ours."""
    return (
        str(release.manager),
        *_component(seat, "controller-manager", seat.manager_port),
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={wish.pod_cidr}",
        *_mask(wish.pod_cidr),
        f"--service-cluster-ip-range={wish.service_cidr}",
        f"--cluster-name={wish.key.name}",
        "--cloud-provider=external",
        f"--cluster-signing-cert-file={seat.pki('ca.crt')}",
        f"--cluster-signing-key-file={seat.pki('ca.key')}",
        "--controllers=*,bootstrapsigner,tokencleaner",
        f"--root-ca-file={seat.pki('ca.crt')}",
        f"--service-account-private-key-file={seat.pki('sa.key')}",
        "--use-service-account-credentials=true",
    )


def _mask(network: str) -> Argv:
    if ":" in network:  # the program's own sizes fit
        return ()
    return (f"--node-cidr-mask-size={node_mask(network)}",)


def scheduler(release: Release, seat: Seat) -> Argv:
    """kube-scheduler."""
    return (str(release.scheduler), *_component(seat, "scheduler", seat.scheduler_port))


def _component(seat: Seat, name: str, port: int) -> Argv:
    """What both have; one of each runs, so nobody is elected."""
    conf = seat.conf(name)
    return (
        f"--kubeconfig={conf}",
        f"--authentication-kubeconfig={conf}",
        f"--authorization-kubeconfig={conf}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={seat.pki('component.crt')}",
        f"--tls-private-key-file={seat.pki('component.key')}",
        f"--client-ca-file={seat.pki('ca.crt')}",
        f"--requestheader-client-ca-file={seat.pki('front-proxy-ca.crt')}",
        "--leader-elect=false",
        "--profiling=false",
    )


def etcd(program: Path, folder: Path, client_port: int, peer_port: int) -> Argv:
    """The store of all tenants: loopback, certificates on both doors, an authority for each."""
    pki = folder / "pki"
    client, peer = f"https://{LOOPBACK}:{client_port}", f"https://{LOOPBACK}:{peer_port}"
    return (
        str(program),
        "--name=moxwell",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=moxwell={peer}",
        "--initial-cluster-token=moxwell",
        "--client-cert-auth=true",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        f"--cert-file={pki / 'server.crt'}",
        f"--key-file={pki / 'server.key'}",
        "--peer-client-cert-auth=true",
        f"--peer-trusted-ca-file={pki / 'peer-ca.crt'}",
        f"--peer-cert-file={pki / 'peer.crt'}",
        f"--peer-key-file={pki / 'peer.key'}",
        "--enable-grpc-gateway=false",  # it would not know who asks
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    )
