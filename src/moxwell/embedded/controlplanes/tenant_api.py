"""Runs one embedded control plane: the API server of a tenant, its controllers and scheduler."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moxwell.api.field_errors import InvalidFields
from moxwell.api.karpenter.annotations import annotation_errors
from moxwell.clock import Clock
from moxwell.embedded.apiserver.audit.audit_log import open_audit
from moxwell.embedded.apiserver.encryption.envelope import open_encryption
from moxwell.embedded.apiserver.hooks import AdmissionAttributes, Hooks
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.kubelet.genuine_kubelets import GenuineKubelets
from moxwell.embedded.apiserver.kubelet.kubelets import OpenKubelets
from moxwell.embedded.apiserver.kubelet.simulated_kubelets import SimulatedKubelets
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controllermanager import setup as controllermanager
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.embedded.ports import https_url
from moxwell.embedded.scheduler.controller import scheduler
from moxwell.kube.client import Kube
from moxwell.pki.certificates import CertificateConfig, load_certificate, public_key_hash
from moxwell.pki.folder import CertificateAuthority, CertificateFolder
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.settings import ManagerSettings

Extend = Callable[[Runtime, Key], object]  # with the key of the TenantControlPlane


def no_extension(runtime: Runtime, key: Key) -> None:
    """Add nothing."""


TENANT_QUOTA_BYTES = 256 << 20  # all objects are in memory too, which is limited per process


@dataclass(frozen=True, slots=True)
class TenantApi:
    """One control plane that listens; the caller runs ``manager``, the controllers."""

    store: EmbeddedApiServer
    server: HttpServer
    manager: Manager

    @classmethod
    async def start(
        cls,
        folder: Path,
        spec: HostedControlPlaneSpec,
        clock: Clock,
        *,
        host: str,
        port: int,
        extend: Extend = no_extension,
        kubelets: Path | None = None,
    ) -> "TenantApi":
        """
        Open the database, apply what joining nodes need, then listen.

        ``kubelets`` is the file that says how to reach simulated kubelets.
        """
        authority = CertificateAuthority(folder / "pki", clock.now)
        store = _store(folder, spec, clock, authority, kubelets)
        await store.start()
        url, ca = https_url(host, port), authority.certificate.decode()
        await kubeadm_objects.apply(Kube(store), url, ca, spec)
        server = HttpServer(
            store,
            authority,
            folder=folder / "pki",
            host=host,
            port=port,
            names=(*spec.cert_sans, f"kubernetes.default.svc.{spec.cluster_domain}"),
        )
        try:
            await server.start()
        except OSError:
            await store.stop()
            raise
        return cls(
            store,
            server,
            hosted_controllers(store, authority, clock, lambda runtime: extend(runtime, spec.key)),
        )

    async def stop(self) -> None:
        """Stop to listen and close the database."""
        await self.server.stop()
        await self.store.stop()


def _store(
    folder: Path,
    spec: HostedControlPlaneSpec,
    clock: Clock,
    authority: CertificateAuthority,
    kubelets: Path | None,
) -> EmbeddedApiServer:
    """The API server on the database of the folder, with its keys and its audit log."""
    cluster = public_key_hash(authority.certificate)
    return EmbeddedApiServer(
        path=folder / "store.db",
        storage=StorageSettings(quota_bytes=TENANT_QUOTA_BYTES),
        encryption=open_encryption(folder / "keys", clock.now()),
        audit=open_audit(folder, clock),
        clock=clock,
        hooks=Hooks(admit=_admit),
        root_ca=authority.certificate.decode(),
        token_key=authority.token_key,
        version=spec.version,
        kubelets=_simulated(kubelets, cluster) if kubelets else _genuine(folder, clock),
    )


def _admit(review: AdmissionAttributes) -> Sequence[str]:
    """Refuse annotations of node classes that mean nothing; CRDs have no rules for them."""
    if not review.subresource:
        wrong = annotation_errors(review.group, review.kind, review.object, review.old)
        if wrong:
            raise InvalidFields(wrong)
    return ()


def _simulated(file: Path, cluster: str) -> OpenKubelets:
    """The kubelets of the lab."""
    return lambda _: SimulatedKubelets(file, cluster)


def _genuine(folder: Path, clock: Clock) -> OpenKubelets:
    """The kubelets of nodes that are no simulation; the certificate is that of kube-apiserver."""
    pki = CertificateFolder(folder / "pki", clock.now)
    config = CertificateConfig(
        common_name="kube-apiserver-kubelet-client", organizations=("system:masters",)
    )
    name = "kubelet-client"
    ca = pki.find("ca")
    assert ca is not None, "the authority made it"
    pki.leaf(name, config, ca)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / f"pki/{name}.crt", folder / f"pki/{name}.key")
    return lambda nodes: GenuineKubelets(context, nodes, clock)


def hosted_controllers(
    store: EmbeddedApiServer,
    authority: CertificateAuthority,
    clock: Clock,
    extend: Callable[[Runtime], object] = lambda runtime: None,
) -> Manager:
    """The controllers of kube-controller-manager and the scheduler, for one apiserver."""
    runtime = assemble(store, clock, ManagerSettings(elect=False, identity="hosted"))
    kube, caches = runtime.kube, runtime.manager.caches
    ca = load_certificate(authority.certificate)
    for controller in controllermanager.controllers(kube, caches, clock, ca, authority.signing_key):
        runtime.manager.add(controller)
    runtime.manager.add(scheduler(kube, caches))
    extend(runtime)
    return runtime.manager
