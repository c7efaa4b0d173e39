"""The programs of a tenant's control plane: command line, files and probe. Pure."""

import sys
from pathlib import Path

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries import flags, konnectivity
from moxwell.embedded.controlplanes.binaries.flags import TenantLayout
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.embedded.controlplanes.binaries.konnectivity import KonnectivityLayout
from moxwell.embedded.controlplanes.supervision.probes import HttpProbe
from moxwell.embedded.controlplanes.supervision.supervisor import Program

API_SERVER, BALANCER = "kube-apiserver", "api-balancer"
BALANCER_MODULE = "moxwell.embedded.controlplanes.balancer"


def api_servers(
    spec: HostedControlPlaneSpec, layout: TenantLayout, release: Release
) -> tuple[Program, ...]:
    """One kube-apiserver on the tenant's address, or several behind the balancer."""
    hosts = layout.replicas or ("",)
    return tuple(
        _program(
            layout,
            f"{API_SERVER}-{index}" if host else API_SERVER,
            flags.apiserver(release, spec, layout, host),
            (host or layout.host, layout.port, "/readyz"),
        )
        for index, host in enumerate(hosts)
    )


def balancer(layout: TenantLayout) -> Program | None:
    """The balancer of several API servers; None if there is one that needs none."""
    if not layout.replicas:
        return None
    python = (sys.executable, "-P", "-m", BALANCER_MODULE)
    where = (layout.host, str(layout.port), str(layout.pki("ca.crt")))
    probed = (layout.host, layout.port, "/readyz")
    program = _program(layout, BALANCER, (*python, *where, *layout.replica_hosts), probed)
    return Program(
        name=program.name,
        argv=program.argv,
        folder=program.folder,
        probe=program.probe,
        files=(layout.pki("ca.crt"),),
    )


def companions(
    spec: HostedControlPlaneSpec, layout: TenantLayout, release: Release
) -> tuple[Program, ...]:
    """What runs once beside the API servers, in the order it starts."""
    local = flags.LOOPBACK
    required = (
        _program(
            layout,
            "kube-controller-manager",
            flags.controller_manager(release, spec, layout),
            (local, layout.manager_port, "/healthz"),
        ),
        _program(
            layout,
            "kube-scheduler",
            flags.scheduler(release, layout),
            (local, layout.scheduler_port, "/healthz"),
        ),
    )
    if layout.konnectivity is None:
        return required
    return (*required, _konnectivity(layout, layout.konnectivity))


def _program(
    layout: TenantLayout, name: str, argv: flags.Argv, probed: tuple[str, int, str]
) -> Program:
    """A program that reads the certificates that exist in the folder."""
    host, port, path = probed
    return Program(
        name=name,
        argv=argv,
        folder=layout.folder,
        probe=HttpProbe(name, host, port, path, layout.pki("ca.crt")),
        files=_certificates(layout),
    )


def _certificates(layout: TenantLayout) -> tuple[Path, ...]:
    return tuple(sorted((layout.folder / "pki").iterdir()))


def _konnectivity(layout: TenantLayout, proxy: KonnectivityLayout) -> Program:
    name, port = konnectivity.PROGRAM, proxy.ports.health
    return Program(
        name=name,
        argv=konnectivity.server_flags(proxy),
        folder=layout.folder,
        probe=HttpProbe(name, flags.LOOPBACK, port, "/healthz", None),
        files=_certificates(layout),
    )
