"""
Metrics of the cloud controllers, under their upstream names.

Delays have the names of k8s.io/cloud-provider, requests those of proxmox-cloud-controller-manager.
Requests are counted at the transport.
"""

import re

from prometheus_client import CollectorRegistry, Counter, Histogram

_DELAYS = (1, 4, 16, 64, 256, 1024)
_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_KINDS: tuple[tuple[str, str], ...] = (
    (r"/cluster/resources", "getVmInfo"),
    (r"/cluster/nextid", "getVmState"),
    (r"/nodes/[^/]+/qemu/\d+/config", "getVMConfig"),
    (r"/nodes/[^/]+/qemu/\d+/agent/.*", "getInstanceInfo"),
    (r"/cluster/ha/.*", "getHAGroups"),
    (r"/cluster/sdn/.*", "ipam"),
)


def kind_of(path: str) -> str:
    """The ``request`` label of a path."""
    return next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, path)), "other")


class CloudMetrics:
    """The metrics of the node controller; one object per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._untainted = Histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Seconds from the creation of a node until its taint was removed",
            registry=registry,
            buckets=_DELAYS,
        )
        self._synced = Histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds from the creation of a node until it was initialized",
            registry=registry,
            buckets=_DELAYS,
        )

    def node_initialized(self, seconds: float) -> None:
        """Record that a node was initialized; the same write removes its taint."""
        self._untainted.observe(seconds)
        self._synced.observe(seconds)


class RequestMetrics:
    """Durations and errors of requests to Proxmox by kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "proxmox_api_request_duration_seconds",
            "Duration of requests to Proxmox",
            ("request",),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._errors = Counter(
            "proxmox_api_request_errors",
            "Failed requests to Proxmox",
            ("request",),
            registry=registry,
        )

    def request_finished(self, method: str, path: str, seconds: float, failed: bool) -> None:
        """Record one request."""
        kind = kind_of(path)
        self._seconds.labels(kind).observe(seconds)
        if failed:
            self._errors.labels(kind).inc()
