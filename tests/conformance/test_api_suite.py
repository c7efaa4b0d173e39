"""
Conformance: the embedded API server responds like a kube-apiserver.

Every case runs on both; responses are normalized (:mod:`apisuite.normal`) and compared.
:mod:`apisuite.allowed` lists the accepted differences with reasons.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from apisuite import embedded, tables
from apisuite.allowed import ALLOWED
from apisuite.case import Case
from apisuite.differ import Allowed, unexplained
from apisuite.play import Player
from apisuite.server import Server
from envtest.control_plane import ControlPlane

pytestmark = pytest.mark.genuine
CASES = tables.load(tables.HTTP + tables.KUBECTL)
OLD = ("kubectl_apply", "kubectl_crds")
Pair = tuple[Server, Server]


def _param(area: str, case: Case) -> ParameterSet:
    half = pytest.mark.xdist_group("kubectl" if area in tables.KUBECTL else "http")
    return pytest.param(area, case, id=f"{area}: {case.name}", marks=half)


@pytest.fixture(scope="module")
def configs(
    own_genuine: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path]]:
    process, config = embedded.start(tmp_path_factory.mktemp("embedded"))
    yield own_genuine.kubeconfig, config
    process.stop()


def _pair(configs: tuple[Path, Path], kubectl: Path, scratch: Path) -> Iterator[Pair]:
    genuine = Server(configs[0], kubectl, scratch / "genuine")
    ours = Server(configs[1], kubectl, scratch / "embedded", patience_seconds=15.0)
    yield genuine, ours
    genuine.close()
    ours.close()


@pytest.fixture(scope="module")
def servers(
    configs: tuple[Path, Path],
    envtest_program: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    yield from _pair(configs, envtest_program("kubectl"), tmp_path_factory.mktemp("now"))


@pytest.fixture(scope="module")
def servers_of_old(
    configs: tuple[Path, Path],
    envtest_program: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    yield from _pair(configs, envtest_program("kubectl-oldest"), tmp_path_factory.mktemp("old"))


def agree(servers: Pair, area: str, case: Case) -> None:
    genuine, ours = (Player(server).play(case) for server in servers)
    found = unexplained(f"{area}: {case.name}", genuine, ours, ALLOWED)
    assert not found, "\n".join(["the servers disagree:", *map(str, found)])


@pytest.mark.parametrize("area, case", [_param(*one) for one in CASES])
def test_responses_equal_those_of_kube_apiserver(servers: Pair, area: str, case: Case) -> None:
    agree(servers, area, case)


@pytest.mark.parametrize("area, case", [_param(*one) for one in tables.load(OLD)])
def test_the_oldest_kubectl_works(servers_of_old: Pair, area: str, case: Case) -> None:
    agree(servers_of_old, area, case)


@pytest.mark.parametrize("area, case", [_param(*one) for one in tables.load(("unsupported",))])
def test_unsupported_requests_are_rejected(servers: Pair, area: str, case: Case) -> None:
    last = Player(servers[1]).play(case)[-1]
    assert last["status"] in (403, 404, 422, 501)


def test_case_names_are_unique() -> None:
    names = [f"{area}: {case.name}" for area, case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


def test_allowed_differences_have_reasons() -> None:
    assert all(len(entry.reason) > 20 for entry in ALLOWED)
    assert len(ALLOWED) <= 40


@pytest.mark.parametrize("entry", ALLOWED, ids=lambda e: f"{e.case} {e.place}")
def test_allowed_differences_match_a_case(entry: Allowed) -> None:
    assert any(entry.covers(f"{a}: {c.name}", entry.place) for a, c in CASES)
