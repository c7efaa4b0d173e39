"""The programs of a tenant's control plane: command line, files and probe. Pure."""

from pathlib import Path

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries import flags, konnectivity
from moxwell.embedded.controlplanes.binaries.flags import TenantLayout
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.embedded.controlplanes.binaries.konnectivity import KonnectivityLayout
from moxwell.embedded.controlplanes.supervision.probes import HttpProbe
from moxwell.embedded.controlplanes.supervision.supervisor import Program

ALL_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", konnectivity.PROGRAM)
PROGRAM_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")  # in start order


def programs(
    spec: HostedControlPlaneSpec, layout: TenantLayout, release: Release
) -> tuple[Program, ...]:
    """The programs in the order they start; lists the certificates that exist in the folder."""
    files = tuple(sorted((layout.folder / "pki").iterdir()))
    local, ca = flags.LOOPBACK, layout.pki("ca.crt")
    manager_port, scheduler_port = layout.manager_port, layout.scheduler_port
    command_lines = (
        flags.apiserver(release, spec, layout),
        flags.controller_manager(release, spec, layout),
        flags.scheduler(release, layout),
    )
    addresses = ((layout.host, layout.port), (local, manager_port), (local, scheduler_port))
    paths = ("/readyz", "/healthz", "/healthz")
    required = tuple(
        Program(
            name=name,
            argv=argv,
            folder=layout.folder,
            probe=HttpProbe(name, host, port, path, ca),
            files=files,
        )
        for name, argv, (host, port), path in zip(
            PROGRAM_NAMES, command_lines, addresses, paths, strict=True
        )
    )
    if layout.konnectivity is None:
        return required
    return (*required, _konnectivity(layout, layout.konnectivity, files))


def _konnectivity(
    layout: TenantLayout, proxy: KonnectivityLayout, files: tuple[Path, ...]
) -> Program:
    name, port = konnectivity.PROGRAM, proxy.ports.health
    return Program(
        name=name,
        argv=konnectivity.server_flags(proxy),
        folder=layout.folder,
        probe=HttpProbe(name, flags.LOOPBACK, port, "/healthz", None),
        files=files,
    )
