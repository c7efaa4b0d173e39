"""
pytest plugin: runs the tests that take longest first, so that none of them ends a run alone.

Durations are recorded in ``durations.json`` of the cache by every run, and only order the next one.
The tests of an ``xdist_group`` run one after the other and count together. A test without a
recorded duration counts as short unless it is marked slow; short tests stay in random order.
"""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envtest import locate

LONG_SECONDS = 0.5  # a shorter test is not recorded
SLOW_SECONDS = 30.0  # assumed of a test that is marked slow


@dataclass(frozen=True)
class TimedTest:
    """A test as its order depends on it; ``group`` is empty without an ``xdist_group``."""

    nodeid: str
    group: str = ""
    slow: bool = False


def order(tests: Sequence[TimedTest], known: Mapping[str, float]) -> list[int]:
    """The positions of the tests, the longest group first; equal ones stay as they are."""
    seconds: dict[str, float] = defaultdict(float)
    for test in tests:
        assumed = SLOW_SECONDS if test.slow else 0.0
        seconds[test.group or test.nodeid] += known.get(test.nodeid, assumed)
    return sorted(range(len(tests)), key=lambda n: -seconds[tests[n].group or tests[n].nodeid])


def merged(known: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """What is stored after a run: the tests that it ran replace what was known of them."""
    kept = {n: s for n, s in known.items() if n not in measured}
    return kept | {n: round(s, 1) for n, s in measured.items() if s >= LONG_SECONDS}


def without_group(nodeid: str) -> str:
    """The node ID of a report without the group that xdist appends to it."""
    at = nodeid.rfind("@")
    return nodeid[:at] if at > nodeid.rfind("]") else nodeid


def read(file: Path) -> dict[str, float]:
    """The recorded durations; none if the file cannot be read, which costs time only."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(file: Path, durations: Mapping[str, float]) -> None:
    """Replace the file at once: several runs may end at the same time."""
    new = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time only
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(dict(sorted(durations.items())), indent=0))
        new.replace(file)


class LongestFirst:
    """Orders the tests of one process; the controller of a run also records durations."""

    def __init__(self, file: Path, known: Mapping[str, float], *, worker: bool) -> None:
        self._file, self._known, self._worker = file, known, worker
        self._measured: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give all workers the same durations: they must agree on the order."""
        node.workerinput["durations"] = dict(self._known)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        tests = [_timed(item) for item in items]
        items[:] = [items[n] for n in order(tests, self._known)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._measured[without_group(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        if self._measured and not self._worker:
            write(self._file, merged(read(self._file), self._measured))


def pytest_configure(config: pytest.Config) -> None:
    """Order by duration instead of xdist's order by number of tests."""
    file = locate.cache() / "durations.json"
    given = getattr(config, "workerinput", None)
    known = given["durations"] if given is not None else read(file)
    config.pluginmanager.register(LongestFirst(file, known, worker=given is not None))
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False


def _timed(item: pytest.Item) -> TimedTest:
    marker = item.get_closest_marker("xdist_group")
    group = str(marker.args[0] if marker.args else marker.kwargs["name"]) if marker else ""
    slow = item.get_closest_marker("slow") is not None
    return TimedTest(item.nodeid.removesuffix(f"@{group}"), group, slow)
