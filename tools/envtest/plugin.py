"""
pytest fixtures for upstream programs, and a report of the tests that were skipped without them.

``envtest_program`` is the path of an installed program, ``genuine`` one upstream control plane per
worker, ``own_genuine`` a new one per module, ``capi`` one with Cluster API (its tests run on one
worker). A test whose program is not installed is skipped and reported as NOT RUN; with ``CI=true``
it fails instead.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from envtest import control_plane, locate, managers
from envtest.control_plane import ControlPlane

KUBERNETES = (*control_plane.PROGRAMS, "kube-controller-manager", "kube-scheduler")
CAPI = tuple(manager.name for manager in managers.ALL)
LOUD = "LOUD: "


def require(*names: str) -> None:
    """Skip the test unless the programs are installed."""
    absent = locate.missing(names)
    if absent:
        need_or_skip(f"{', '.join(absent)} not installed: run `make envtest`")


def need_or_skip(reason: str) -> NoReturn:
    """Fail under CI, otherwise skip with a report: something installable is missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(LOUD + reason)


def skip_here(reason: str) -> NoReturn:
    """
    Skip with a report, also under CI: the kernel or the privileges of this machine do not allow it.
    """
    pytest.skip(LOUD + reason)


@pytest.fixture(scope="session")
def envtest_program() -> Callable[[str], Path]:
    """``envtest_program("csi-sanity")``: its path; skips the test if it is not installed."""

    def find(name: str) -> Path:
        require(name)
        return locate.program(name)

    return find


def _started(folder: Path) -> Iterator[ControlPlane]:
    require(*KUBERNETES)
    with ControlPlane(folder) as plane:
        plane.start()
        plane.start_controller_manager()
        control_plane.wait_default_account(plane)
        yield plane


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """
    etcd, kube-apiserver and kube-controller-manager, shared by the tests of a worker.

    Tests leave no cluster-scoped objects; a test that needs the whole cluster uses ``own_genuine``.
    """
    yield from _started(tmp_path_factory.mktemp("genuine"))


@pytest.fixture(scope="module")
def own_genuine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The same, new for one module; ``start_scheduler`` and ``start_program`` extend it."""
    yield from _started(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def capi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """
    A control plane with Cluster API core, kubeadm bootstrap and in-cluster IPAM.

    Modules share it; each uses its own namespace (``plane.namespace``).
    """
    require(*CAPI)
    for plane in _started(tmp_path_factory.mktemp("capi")):
        managers.start(plane)
        yield plane


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a control plane on one worker, so that only one is started."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if not names & {"own_genuine", "capi"} or item.get_closest_marker("xdist_group"):
            continue
        group = "capi" if "capi" in names else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _reason(report: object) -> str:
    text = getattr(report, "longrepr", None)
    return str(text[2]) if isinstance(text, tuple) else str(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one red line for each reason why tests did not run."""
    counts: dict[str, int] = {}
    for report in terminalreporter.getreports("skipped"):
        _, found, reason = _reason(report).partition(LOUD)
        if found:
            counts[reason] = counts.get(reason, 0) + 1
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"NOT RUN: {count} tests: {reason}", red=True, bold=True)
