"""
The folder of one tenant's control plane: certificates, kubeconfig files and remembered ports.

All files are 0600. The etcd prefix is that of the UID the tenant was created with, whatever object
owns the control plane later.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries import flags, konnectivity
from moxwell.embedded.controlplanes.binaries.flags import TenantLayout
from moxwell.embedded.controlplanes.binaries.konnectivity import (
    KonnectivityLayout,
    KonnectivityPorts,
)
from moxwell.embedded.ports import https_url
from moxwell.kube import kubeconfig_writer
from moxwell.pki.certificates import ADMIN_LIFETIME, CertificateConfig, KeyPair
from moxwell.pki.folder import CertificateFolder


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept about a tenant between starts."""

    uid: str
    version: str
    port: int
    manager_port: int
    scheduler_port: int
    rotation: str = ""
    initialized: bool = False  # it was ready once, so nodes can join
    welcomed: bool = False  # the old name of ``initialized``; read, never written
    konnectivity: KonnectivityPorts | None = None
    replica_hosts: tuple[str, ...] = ()  # addresses of API servers behind a balancer


class TenantFolder:
    """Reads and writes the files of one tenant."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._certificates = CertificateFolder(folder / "pki", clock.now)
        self._kubeconfigs = CertificateFolder(folder, clock.now)

    @property
    def _file(self) -> Path:
        return self.folder / "tenant.json"

    def find(self) -> TenantRecord | None:
        """The stored record; None if the tenant does not exist here."""
        if not self._file.exists():
            return None
        found = msgspec.json.decode(self._file.read_bytes(), type=TenantRecord)
        initialized = found.initialized or found.welcomed
        return msgspec.structs.replace(found, initialized=initialized, welcomed=False)

    def remember(self, record: TenantRecord) -> TenantRecord:
        """Store the record unless it is unchanged, and return it."""
        if self.find() != record:
            write_private(self._file, msgspec.json.encode(record))
        return record

    def find_or_create(
        self, spec: HostedControlPlaneSpec, host: str, new_port: Callable[[str], int]
    ) -> TenantRecord:
        """The stored record, or a new one with new ports, one on ``host`` and two on loopback."""
        found = self.find()
        if found is not None:
            return found
        ports = _different(new_port, (host, flags.LOOPBACK, flags.LOOPBACK))
        return self.remember(
            TenantRecord(
                uid=spec.uid,
                version=spec.version,
                port=ports[0],
                manager_port=ports[1],
                scheduler_port=ports[2],
                rotation=spec.rotation,
            )
        )

    def write(
        self, spec: HostedControlPlaneSpec, layout: TenantLayout, etcd_ca: KeyPair, *, rotate: bool
    ) -> None:
        """Write every file the programs read; certificates are renewed when due or rotated."""
        folder = self._certificates
        ca = folder.ca("ca", "kubernetes")
        front_proxy_ca = folder.ca("front-proxy-ca", "front-proxy-ca")
        folder.token_keys()
        folder.write("etcd-ca.crt", etcd_ca.certificate)
        for name, config, signer in _leaves(spec, layout, ca, front_proxy_ca, etcd_ca):
            folder.leaf(name, config, signer, rotate=rotate)
        names = ["admin", "controller-manager", "scheduler"]
        if layout.konnectivity is not None:
            self._write_konnectivity(layout.konnectivity, ca, rotate=rotate)
            names.append(konnectivity.PROGRAM)
        url = https_url(layout.host, layout.port)
        for name in names:
            client = folder.find(f"{name}-client")
            assert client is not None, "it was created above"
            text = kubeconfig_writer.render(url, ca.certificate, client, spec.key.name)
            self._kubeconfigs.write(f"{name}.conf", text.encode())

    def _write_konnectivity(self, layout: KonnectivityLayout, ca: KeyPair, *, rotate: bool) -> None:
        """Certificates of both sides of the proxy, and the configuration of kube-apiserver."""
        folder, own = self._certificates, self._certificates.ca("konnectivity-ca", "konnectivity")
        local, seen = (konnectivity.LOOPBACK, "localhost"), (layout.host,)
        leaves = (
            ("konnectivity-server", _server("konnectivity", *local), own),
            ("konnectivity-apiserver", _client("kube-apiserver"), own),
            ("konnectivity-agents", _server("konnectivity", *seen), ca),
            (f"{konnectivity.PROGRAM}-client", _client(konnectivity.USER), ca),
        )
        for name, config, signer in leaves:
            folder.leaf(name, config, signer, rotate=rotate)
        text = konnectivity.egress_configuration(layout)
        self._kubeconfigs.write(konnectivity.EGRESS, text.encode())

    def read(self, name: str) -> str:
        """The text of a file."""
        return (self.folder / name).read_text()


def server_names(spec: HostedControlPlaneSpec, layout: TenantLayout) -> tuple[str, ...]:
    """The names and addresses of a tenant's API servers."""
    names = (
        layout.host,
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{spec.cluster_domain}",
        flags.first_address(spec.service_cidr),
        *spec.cert_sans,
        *((spec.address,) if spec.address else ()),
        *layout.replica_hosts,
    )
    return tuple(dict.fromkeys(names))


def _client(common_name: str, *organizations: str) -> CertificateConfig:
    return CertificateConfig(common_name=common_name, organizations=organizations)


def _server(common_name: str, *names: str) -> CertificateConfig:
    return CertificateConfig(common_name=common_name, alt_names=names, client_auth=False)


def _leaves(
    spec: HostedControlPlaneSpec,
    layout: TenantLayout,
    ca: KeyPair,
    front_proxy_ca: KeyPair,
    etcd_ca: KeyPair,
) -> Iterator[tuple[str, CertificateConfig, KeyPair]]:
    """File name, content and CA of each certificate."""
    client, server = _client, _server
    etcd_user = layout.etcd_prefix.strip("/").rpartition("/")[2]
    yield "apiserver", server("kube-apiserver", *server_names(spec, layout)), ca
    yield "component", server("moxwell", "127.0.0.1", "localhost"), ca
    yield "kubelet-client", client("kube-apiserver-kubelet-client", "system:masters"), ca
    admin = replace(client("kubernetes-admin", "system:masters"), lifetime=ADMIN_LIFETIME)
    yield "admin-client", admin, ca
    yield "controller-manager-client", client("system:kube-controller-manager"), ca
    yield "scheduler-client", client("system:kube-scheduler"), ca
    yield "front-proxy-client", client("front-proxy-client"), front_proxy_ca
    yield "etcd-client", client(etcd_user), etcd_ca


def _different(new_port: Callable[[str], int], hosts: Sequence[str]) -> list[int]:
    """A port on each address, all different."""
    ports: list[int] = []
    for host in hosts:
        while (port := new_port(host)) in ports:
            continue
        ports.append(port)
    return ports
