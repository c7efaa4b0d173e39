"""
The host names and the port by which clients reach control planes through the proxy.

The name of a tenant is ``NAME.NAMESPACE.DOMAIN``. Its API server listens on loopback; certificate,
kubeconfig and the objects for joining nodes have the name and the port of the proxy.
"""

from dataclasses import replace

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controlplanes.sni.proxy import SniProxy
from moxwell.embedded.controlplanes.sni.settings import SniSettings
from moxwell.embedded.ports import host_port, https_url
from moxwell.kube import kubeconfig_writer
from moxwell.runtime.key import Key


class SniExposure:
    """Translates between a tenant's API server and what its clients see."""

    def __init__(self, settings: SniSettings, address: str) -> None:
        """``address`` is where the proxy listens."""
        self._settings = settings
        self._routes: dict[str, tuple[str, int]] = {}
        self.proxy = SniProxy(address, settings.port, self._routes)

    def name(self, key: Key) -> str:
        """The name of a tenant's API server."""
        return f"{key.name}.{key.namespace}.{self._settings.domain}"

    def inner_spec(self, spec: HostedControlPlaneSpec) -> HostedControlPlaneSpec:
        """The specification with the name in certificates and in the objects for nodes."""
        name = self.name(spec.key)
        names = tuple(dict.fromkeys((*spec.cert_sans, name)))
        return replace(spec, cert_sans=names, external=host_port(name, self._settings.port))

    def expose(self, key: Key, plane: HostedControlPlane) -> HostedControlPlane:
        """Route the name to the control plane; returns it as its clients see it."""
        name, port = self.name(key), self._settings.port
        self._routes[name] = (plane.host, plane.port)
        text = kubeconfig_writer.with_server(plane.admin_kubeconfig, https_url(name, port))
        return replace(plane, host=name, port=port, admin_kubeconfig=text)

    def withdraw(self, key: Key) -> None:
        """Remove the route of a control plane that does not run."""
        self._routes.pop(self.name(key), None)
