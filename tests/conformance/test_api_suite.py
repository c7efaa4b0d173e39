"""
One suite on two servers: the embedded API must answer what a genuine apiserver answers.

Differences are compared after what may differ is replaced by words (:mod:`apisuite.normal`); the
few that remain are listed with their reasons in :mod:`apisuite.allowed`.
"""

from collections.abc import Iterator

import pytest
from _pytest.mark.structures import ParameterSet

from apisuite import embedded, tables
from apisuite.allowed import ALLOWED
from apisuite.case import Case
from apisuite.differ import Allowed, unexplained
from apisuite.play import Player
from apisuite.server import Server
from rig import locate
from rig.control_plane import ControlPlane

pytestmark = pytest.mark.genuine
CASES = tables.load(tables.HTTP + tables.KUBECTL)


def _param(area: str, case: Case) -> ParameterSet:
    half = pytest.mark.xdist_group("kubectl" if area in tables.KUBECTL else "http")
    return pytest.param(area, case, id=f"{area}: {case.name}", marks=half)


@pytest.fixture(scope="module")
def servers(
    own_genuine: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("servers")
    process, config = embedded.start(folder / "embedded")
    kubectl = locate.program("kubectl")
    both = (
        Server(own_genuine.kubeconfig, kubectl, folder / "g"),
        Server(config, kubectl, folder / "e", patience_seconds=15.0),
    )
    yield both
    for server in both:
        server.close()
    process.stop()


@pytest.mark.parametrize("area, case", [_param(*one) for one in CASES])
def test_answers_as_the_genuine_one(servers: tuple[Server, Server], area: str, case: Case) -> None:
    genuine, ours = (Player(server).play(case) for server in servers)
    found = unexplained(f"{area}: {case.name}", genuine, ours, ALLOWED)
    assert not found, "\n".join(["the servers disagree:", *map(str, found)])


def test_names_are_told_apart() -> None:
    names = [f"{area}: {case.name}" for area, case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


def test_allowed_differences_have_reasons() -> None:
    assert all(len(entry.reason) > 20 for entry in ALLOWED)
    assert len(ALLOWED) <= 40


@pytest.mark.parametrize("entry", ALLOWED, ids=lambda e: f"{e.case} {e.place}")
def test_allowed_differences_are_about_a_case(entry: Allowed) -> None:
    assert any(entry.covers(f"{a}: {c.name}", entry.place) for a, c in CASES)
