"""The reference names every setting and every metric, and nothing that is not there."""

import re
from dataclasses import fields
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import ManagerSettings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "runtime.md"

# created elsewhere, documented on the same page
OF_CONTROLLERS = {"moxwell_orphaned_guests", "moxwell_proxmox_writes_total"}


def documented(section: str) -> set[str]:
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))


def test_every_setting_is_documented() -> None:
    assert documented("Settings") == {f.name for f in fields(ManagerSettings)}


def test_every_metric_is_documented() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    lines = generate_latest(registry).decode().splitlines()
    ours = {li.split()[2] for li in lines if li.startswith("# TYPE")}
    assert documented("Metrics") - OF_CONTROLLERS == ours
