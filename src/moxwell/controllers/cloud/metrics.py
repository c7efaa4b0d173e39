"""
What the cloud controller counts, under the names that operators know.

The delays are k8s.io/cloud-provider's; the requests are proxmox-cloud-controller-manager's, counted
on the wire (``asked`` is what a counted transport tells), so that nothing sent can be forgotten.
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
    """The label of a request."""
    return next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, path)), "other")


class CloudMetrics:
    """Every metric of the cloud controllers; made once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._untainted = Histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Seconds from the creation of a node until its taint was taken off",
            registry=registry,
            buckets=_DELAYS,
        )
        self._synced = Histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds from the creation of a node until it had its identity",
            registry=registry,
            buckets=_DELAYS,
        )

    def initialised(self, seconds: float) -> None:
        """A node has its identity; taint and identity come in one write."""
        self._untainted.observe(seconds)
        self._synced.observe(seconds)


class RequestMetrics:
    """Requests to Proxmox by kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "proxmox_api_request_duration_seconds",
            "Requests to Proxmox",
            ("request",),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._errors = Counter(
            "proxmox_api_request_errors", "Refused requests", ("request",), registry=registry
        )

    def asked(self, method: str, path: str, seconds: float, failed: bool) -> None:
        """One request was answered, or not."""
        kind = kind_of(path)
        self._seconds.labels(kind).observe(seconds)
        if failed:
            self._errors.labels(kind).inc()
