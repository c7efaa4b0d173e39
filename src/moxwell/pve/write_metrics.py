"""Exports the number of writes to Proxmox by region and outcome as a Prometheus counter."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from moxwell.pve.effects import Effects


class WriteCollector(Collector):
    """Reads ``Effects.counts`` when metrics are scraped."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def collect(self) -> Iterator[CounterMetricFamily]:
        found = CounterMetricFamily(
            "moxwell_proxmox_writes",
            "Writes to Proxmox: ok, failed, or refused before they were sent",
            labels=("region", "outcome"),
        )
        for labels, count in sorted(self._effects.counts.items()):
            found.add_metric(labels, count)
        yield found


def export_writes(registry: CollectorRegistry, effects: Effects) -> None:
    """Add the counter to a registry."""
    registry.register(WriteCollector(effects))
