"""
Prometheus metrics of the driver: its CSI calls and its requests to Proxmox.

CSI calls use the metric name and labels that CSI drivers share, with status codes as Go spells
them. Requests to Proxmox use the names and labels of proxmox-csi-plugin, so its dashboards work.
"""

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

import moxwell

_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CALL_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_GO_SPELLING = {"OK": "OK", "CANCELLED": "Canceled"}
_REQUEST_LABELS: tuple[tuple[str, str, str], ...] = (
    ("POST", r".*/storage/[^/]+/content", "createVolume"),
    ("POST", r".*/storage/[^/]+/content/.+", "copyVolume"),
    ("DELETE", r".*/storage/[^/]+/content/.+", "deleteVolume"),
    ("GET", r".*/storage/.*", "storageStatus"),
    ("PUT", r".*/resize", "expandVolume"),
    ("POST", r".*/qemu/\d+/config", "attachVolume"),
    ("PUT", r".*/qemu/\d+/config", "updateVolume"),
    ("GET", r".*/qemu/\d+/(config|pending)", "readVm"),
    ("POST", r".*/qemu", "createVm"),
    ("GET", r"/cluster/.*", "cluster"),
)


def request_label(method: str, path: str) -> str:
    """The ``request`` label of a request to Proxmox."""
    for verb, pattern, kind in _REQUEST_LABELS:
        if verb == method and re.fullmatch(pattern, path):
            return kind
    return "other"


def go_code(name: str) -> str:
    """
    A gRPC status code as Go spells it: ``FAILED_PRECONDITION`` becomes ``FailedPrecondition``.
    """
    return _GO_SPELLING.get(name) or "".join(word.capitalize() for word in name.split("_"))


class CsiMetrics:
    """The metrics of the driver; one instance per registry."""

    def __init__(self, registry: CollectorRegistry, driver: str = "csi.moxwell.dev") -> None:
        self.registry, self._driver = registry, driver
        self._calls = Histogram(
            "csi_plugin_operations_seconds",
            "CSI calls by method and outcome",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=registry,
            buckets=_CALL_BUCKETS,
        )
        self._running = Gauge(
            "csi_plugin_operations_in_flight",
            "CSI calls that are being answered",
            ("driver_name", "method_name"),
            registry=registry,
        )
        about = Info("moxwell_csi", "Version and name of the driver", registry=registry)
        about.info({"version": moxwell.__version__, "driver_name": driver})
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

    def call_started(self, call: str) -> None:
        self._running.labels(self._driver, call).inc()

    def call_finished(self, call: str, code: str, seconds: float) -> None:
        """
        Record a finished call; ``call`` is the full name, ``/csi.v1.Controller/CreateVolume``.
        """
        self._running.labels(self._driver, call).dec()
        self._calls.labels(self._driver, call, go_code(code)).observe(seconds)

    def request_finished(self, method: str, path: str, seconds: float, failed: bool) -> None:
        """Record a finished request to Proxmox."""
        kind = request_label(method, path)
        self._seconds.labels(kind).observe(seconds)
        if failed:
            self._errors.labels(kind).inc()
