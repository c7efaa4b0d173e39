"""
Chooses what runs a tenant's control plane: an embedded one in a process, or binaries.

A tenant stays with whatever ran it first, so that changing the choice moves no data.
``--control-plane-binaries`` (or the configuration) is ``installed``, a folder, or ``no``. The
modules for binaries are imported only if binaries are chosen or were used before.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controlplanes.addresses import ControlPlaneAddresses, TenantAddresses
from moxwell.embedded.controlplanes.processes.control_planes import ProcessControlPlanes
from moxwell.embedded.controlplanes.sni.exposure import SniExposure
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.controlplanes.tenant_api import Extend
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key

NO = "no"
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "PYTHONHASHSEED")


class HostedControlPlanes:
    """All hosted control planes of an instance."""

    def __init__(
        self,
        embedded_root: Path,
        embedded: ProcessControlPlanes,
        binaries: Any = None,
        version: str = "",
        exposure: SniExposure | None = None,
        release: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """
        ``version`` is that of new clusters on binaries; empty: new ones are embedded.

        ``release`` gives the address of a tenant back before the tenant is deleted.
        """
        self._exposure, self._release = exposure, release
        self._embedded_root, self._embedded, self._binaries = embedded_root, embedded, binaries
        self.version = version

    def listen(self, changed: Callable[[Key], None]) -> None:
        """Call ``changed`` when the state of a control plane changes."""
        self._embedded.changed = changed
        if self._binaries is not None:
            self._binaries.changed = changed

    async def run(self) -> None:
        """Own all control planes until cancelled, then stop them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._embedded.run())
            if self._binaries is not None:
                group.create_task(self._binaries.run())
            if self._exposure is not None:
                group.create_task(self._exposure.proxy.run())

    def caches(self, key: Key) -> Caches | None:
        """The informer caches of a tenant; None while it does not run."""
        found: Caches | None = self._runner(key).caches(key)
        return found

    def pods_by_node(self, key: Key) -> dict[str, int]:
        """The number of running pods on each node of a tenant."""
        caches = self.caches(key)
        pods = caches.of(resources.PODS).list() if caches else ()
        return dict(Counter(p["spec"]["nodeName"] for p in pods if _is_running(p)))

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        exposure = self._exposure
        inner = spec if exposure is None else exposure.inner_spec(spec)
        plane: HostedControlPlane = await self._runner(spec.key).ensure(inner)
        return plane if exposure is None else exposure.expose(spec.key, plane)

    async def sleep(self, key: Key) -> None:
        if self._exposure is not None:
            self._exposure.withdraw(key)
        await self._runner(key).sleep(key)

    async def destroy(self, key: Key) -> None:
        if self._exposure is not None:
            self._exposure.withdraw(key)
        runner = self._runner(key)
        await runner.sleep(key)
        await asyncio.to_thread(self._release, key)
        await runner.destroy(key)

    def _runner(self, key: Key) -> Any:
        folder = self._embedded_root / key.namespace / key.name
        if self._binaries is None or folder.exists():
            return self._embedded
        return self._binaries if self.version or self._binaries.has(key) else self._embedded


async def open_control_planes(
    embedded_root: Path,
    binaries_root: Path,
    clock: Clock,
    choice: str,
    environ: Mapping[str, str],
    *,
    addresses: ControlPlaneAddresses,
    extend: Extend,
    addons: Any = None,
    kubelets: Path | None = None,
) -> HostedControlPlanes:
    """The control planes of an instance; raises Missing if chosen binaries are not installed."""
    tenants = TenantAddresses(addresses, (embedded_root, binaries_root / "tenants"))
    shared: Any = {"new_port": addresses.new_port, "address": tenants.host, "extend": extend}
    processes = Processes(clock, python_environ(environ))
    shared_embedded = {"processes": processes, "kubelets": kubelets, **shared}
    embedded = ProcessControlPlanes(embedded_root, clock, **shared_embedded)
    chosen, exposure = choice not in ("", NO), open_exposure(addresses)
    if not chosen and not _exists(binaries_root):
        return HostedControlPlanes(
            embedded_root, embedded, exposure=exposure, release=tenants.release
        )
    from moxwell.embedded.controlplanes.binaries.control_planes import BinaryControlPlanes
    from moxwell.embedded.controlplanes.binaries.installed import InstalledReleases, folders

    installed = InstalledReleases(folders(choice if chosen else "", environ))
    binaries = BinaryControlPlanes(
        binaries_root,
        clock,
        installed=installed,
        processes=Processes(clock, _program_environ(environ, binaries_root)),
        konnectivity=_konnectivity(addresses),
        addons=addons,
        etcd_hosts=addresses.etcd_hosts,
        **shared,
    )
    newest = await _newest(installed) if chosen else ""
    given: Any = {"exposure": exposure, "release": tenants.release}
    return HostedControlPlanes(embedded_root, embedded, binaries, newest, **given)


async def _newest(installed: Any) -> str:
    installed.etcd()
    return str(await installed.newest())


def _konnectivity(addresses: ControlPlaneAddresses) -> Any:
    """The settings of konnectivity for control planes from binaries; None: without it."""
    if addresses.konnectivity is None:
        return None
    from moxwell.embedded.controlplanes.binaries.konnectivity import IMAGE, KonnectivitySettings

    address = addresses.address if addresses.sni else ""
    return KonnectivitySettings(image=addresses.konnectivity or IMAGE, address=address)


def open_exposure(addresses: ControlPlaneAddresses) -> SniExposure | None:
    """The proxy of all control planes; None if each has an address or a port of its own."""
    return SniExposure(addresses.sni, addresses.address) if addresses.sni else None


async def binaries_version(choice: str, environ: Mapping[str, str]) -> str:
    """The version that new tenants get from the chosen binaries; empty if none are chosen."""
    if not choice or choice == NO:
        return ""
    from moxwell.embedded.controlplanes.binaries.installed import InstalledReleases, folders

    return await InstalledReleases(folders(choice, environ)).newest()


def python_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of our own child processes: what Python and its clock need, no secrets."""
    return {name: environ[name] for name in PASSED_ON if name in environ}


def _program_environ(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    found = {"PATH": environ.get("PATH", ""), "HOME": str(home)}
    ours = environ.get("PYTHONPATH")  # the balancer is a program of ours
    return found | ({"PYTHONPATH": ours} if ours else {})


def _exists(folder: Path) -> bool:
    return folder.exists()


def _is_running(pod: dict[str, Any]) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and bool(pod["spec"].get("nodeName"))
