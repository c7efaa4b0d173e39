"""The folder of one embedded control plane: its CA, port, admin kubeconfig and database."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.ports import https_url
from moxwell.kube import kubeconfig_writer
from moxwell.pki.certificates import expires
from moxwell.pki.folder import CertificateAuthority

RENEW_BEFORE = timedelta(days=30)


class HostedFolder:
    """Reads and writes the files of one tenant."""

    def __init__(self, folder: Path, clock: Clock, host: str) -> None:
        self.folder, self._clock, self.host = folder, clock, host

    def authority(self) -> CertificateAuthority:
        """The CA of the tenant, created once."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return CertificateAuthority(self.folder / "pki", self._clock.now)

    def port(self, new_port: Callable[[str], int]) -> int:
        """The port of the tenant; it never changes."""
        file = self.folder / "port"
        if not file.exists():
            write_private(file, str(new_port(self.host)).encode())
        return int(file.read_text())

    def was_ready(self) -> bool:
        """Whether the control plane has been ready once."""
        return (self.folder / "initialized").exists()

    def remember_ready(self) -> None:
        (self.folder / "initialized").touch(mode=0o600)

    def admin_kubeconfig(
        self, spec: HostedControlPlaneSpec, authority: CertificateAuthority, port: int
    ) -> str:
        """
        The kubeconfig of the administrator, valid for days and renewed in time.

        A new ``rotation`` writes a new one and revokes the old one; a new address writes a new one.
        """
        admin, rotation = self.folder / "admin.conf", self.folder / "rotation"
        url, text = https_url(self.host, port), admin.read_text() if admin.exists() else ""
        known = kubeconfig_writer.client_certificate(text)
        rotated = rotation.read_text() if rotation.exists() else ""
        if known is not None and rotated != spec.rotation:
            authority.revoke(known)
            known = None
        if kubeconfig_writer.server(text) != url:
            known = None
        pair = authority.administrator(known)
        if pair is not None:
            text = kubeconfig_writer.render(url, authority.certificate, pair, spec.key.name)
            write_private(admin, text.encode())
            rotation.write_text(spec.rotation)
        return admin.read_text()

    def describe(
        self,
        spec: HostedControlPlaneSpec,
        authority: CertificateAuthority,
        port: int,
        *,
        ready: bool = True,
        message: str = "",
        last_exit: str = "",
    ) -> HostedControlPlane:
        """The state to report."""
        certificate = self.folder / "pki" / "server.crt"
        return HostedControlPlane(
            host=self.host,
            port=port,
            version=spec.version,
            ready=ready,
            initialized=self.was_ready(),
            message=message,
            last_exit=last_exit,
            ca=authority.certificate.decode(),
            ca_key=(self.folder / "pki" / "ca.key").read_text(),
            admin_kubeconfig=self.admin_kubeconfig(spec, authority, port),
            expires=expires(certificate.read_bytes()) if certificate.exists() else None,
        )


def certificate_is_due(plane: HostedControlPlane, clock: Clock) -> bool:
    """Whether the serving certificate is renewed, by a restart."""
    return plane.expires is not None and plane.expires - clock.now() < RENEW_BEFORE
