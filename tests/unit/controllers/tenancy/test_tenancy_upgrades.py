"""Which Kubernetes versions can follow which."""

import pytest

from moxwell.controllers.tenancy.cluster.upgrades import check_upgrade
from moxwell.errors import Invalid

BOTH = ("v1.34.1", "v1.35.0")


@pytest.mark.parametrize(
    ("running", "wanted", "nodes"),
    [
        pytest.param("v1.34.1", "v1.35.0", (), id="the next minor"),
        pytest.param("v1.34.1", "1.35", (), id="the next minor, short"),
        pytest.param("v1.34.1", "v1.34.2", (), id="a patch"),
        pytest.param("v1.34.1", "v1.34.1", (), id="the same"),
        pytest.param("v1.34.1", "v1.34", (), id="the minor that runs"),
        pytest.param("v1.35.0", "v1.34.1", BOTH, id="an upgrade that rolls is taken back"),
        pytest.param("v1.35.0", "v1.34", BOTH, id="it is taken back, short"),
        pytest.param("", "v1.31.4", (), id="nothing runs yet"),
    ],
)
def test_possible(running: str, wanted: str, nodes: tuple[str, ...]) -> None:
    check_upgrade(running, wanted, nodes=nodes)


@pytest.mark.parametrize(
    ("running", "wanted", "nodes", "said"),
    [
        pytest.param("v1.35.0", "v1.34.1", (), "no downgrade", id="a lower minor"),
        pytest.param("v1.35.0", "v1.33.4", BOTH, "no downgrade", id="one that no node has"),
        pytest.param("v1.34.1", "v1.33.4", ("v1.34.1",), "no downgrade", id="before it rolls"),
        pytest.param("v1.35.2", "v1.35.1", (), "no downgrade", id="a lower patch"),
        pytest.param("v1.33.1", "v1.35.0", (), r"v1\.34 first", id="a skipped minor"),
        pytest.param("v1.33.1", "v1.35.0", BOTH, r"v1\.34 first", id="a skipped minor, rolling"),
        pytest.param("v1.34.1", "v2.0.0", (), "skips", id="another major"),
        pytest.param("v1.34.1", "latest", (), "not a Kubernetes version", id="no version"),
        pytest.param("", "1.34.x", (), "not a Kubernetes version", id="no version, new"),
    ],
)
def test_refused(running: str, wanted: str, nodes: tuple[str, ...], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_upgrade(running, wanted, nodes=nodes)
