"""
What the driver counts: its own calls, and what they ask of Proxmox.

Calls are counted under the name that CSI drivers share, with the words of gRPC's codes as Go writes
them, so one alert serves ours and others'. The second pair has proxmox-csi-plugin's names and
labels, so its dashboards work unchanged.
Counting happens on the wire, so nothing that is sent can be forgotten.
"""

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

import moxwell

_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CALL_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_ODD_CODES = {"OK": "OK", "CANCELLED": "Canceled"}
_KINDS: tuple[tuple[str, str, str], ...] = (
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


def kind_of(method: str, path: str) -> str:
    """The label of a request."""
    for verb, pattern, kind in _KINDS:
        if verb == method and re.fullmatch(pattern, path):
            return kind
    return "other"


def go_code(name: str) -> str:
    """A code of gRPC as Go writes it: ``FAILED_PRECONDITION`` is ``FailedPrecondition``."""
    return _ODD_CODES.get(name) or "".join(word.capitalize() for word in name.split("_"))


class CsiMetrics:
    """Every metric of the driver; made once per registry."""

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
        about = Info("moxwell_csi", "What runs here", registry=registry)
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

    def began(self, call: str) -> None:
        self._running.labels(self._driver, call).inc()

    def called(self, call: str, code: str, seconds: float) -> None:
        """``call`` is the whole name, ``/csi.v1.Controller/CreateVolume``."""
        self._running.labels(self._driver, call).dec()
        self._calls.labels(self._driver, call, go_code(code)).observe(seconds)

    def asked(self, method: str, path: str, seconds: float, failed: bool) -> None:
        """One request was answered, or not."""
        kind = kind_of(method, path)
        self._seconds.labels(kind).observe(seconds)
        if failed:
            self._errors.labels(kind).inc()
