"""Which add-ons tenants get, and the objects of those that are built in. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell import __version__
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.charts import Chart
from moxwell.embedded.controlplanes.addons.coredns import coredns
from moxwell.embedded.controlplanes.addons.csi_node import csi_node
from moxwell.embedded.controlplanes.addons.kube_proxy import kube_proxy
from moxwell.embedded.controlplanes.addons.metrics_server import metrics_server
from moxwell.embedded.controlplanes.addons.objects import Json
from moxwell.embedded.controlplanes.addons.routed_cni import routed_cni

REPOSITORY = "registry.k8s.io"
IMAGE = f"ghcr.io/moxwell/moxwell:v{__version__}"


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is fetched once and must have this SHA-256."""

    url: str
    sha256: str


class AddonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which add-ons tenants get; ``manifests`` are the objects of the user's files."""

    kube_proxy: bool = False
    coredns: bool = False
    metrics_server: bool = False
    csi: bool = False
    cni: bool = False
    proxy_configuration: Mapping[str, Any] = msgspec.field(default_factory=dict)
    image_repository: str = REPOSITORY
    image: str = IMAGE
    manifests: tuple[Json, ...] = ()
    downloads: tuple[Download, ...] = ()
    charts: tuple[Chart, ...] = ()


def built_in_objects(
    settings: AddonSettings, spec: HostedControlPlaneSpec, url: str
) -> tuple[Json, ...]:
    """All objects; ``url`` is the API server as nodes reach it."""
    repository, image = settings.image_repository, settings.image
    proxy = settings.proxy_configuration
    return (
        *(routed_cni(image, url, spec.pod_cidr) if settings.cni else ()),
        *(kube_proxy(repository, spec, url, proxy) if settings.kube_proxy else ()),
        *(coredns(repository, spec) if settings.coredns else ()),
        *(csi_node(image, url) if settings.csi else ()),
        *(metrics_server(repository) if settings.metrics_server else ()),
        *settings.manifests,
    )
