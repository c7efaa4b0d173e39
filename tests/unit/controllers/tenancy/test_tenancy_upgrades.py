"""Which Kubernetes versions can follow which."""

import pytest

from moxwell.controllers.tenancy.cluster.upgrades import check_upgrade
from moxwell.errors import Invalid


@pytest.mark.parametrize(
    ("running", "wanted", "rolling"),
    [
        pytest.param("v1.34.1", "v1.35.0", False, id="the next minor"),
        pytest.param("v1.34.1", "1.35", False, id="the next minor, short"),
        pytest.param("v1.34.1", "v1.34.2", False, id="a patch"),
        pytest.param("v1.34.1", "v1.34.1", False, id="the same"),
        pytest.param("v1.34.1", "v1.34", False, id="the minor that runs"),
        pytest.param("v1.35.0", "v1.34.1", True, id="an upgrade that rolls is taken back"),
        pytest.param("", "v1.31.4", False, id="nothing runs yet"),
    ],
)
def test_possible(running: str, wanted: str, rolling: bool) -> None:
    check_upgrade(running, wanted, rolling=rolling)


@pytest.mark.parametrize(
    ("running", "wanted", "rolling", "said"),
    [
        pytest.param("v1.35.0", "v1.34.1", False, "no downgrade", id="a lower minor"),
        pytest.param("v1.35.2", "v1.35.1", False, "no downgrade", id="a lower patch"),
        pytest.param("v1.33.1", "v1.35.0", False, r"v1\.34 first", id="a skipped minor"),
        pytest.param("v1.33.1", "v1.35.0", True, r"v1\.34 first", id="a skipped minor, rolling"),
        pytest.param("v1.34.1", "v2.0.0", False, "skips", id="another major"),
        pytest.param("v1.34.1", "latest", False, "not a Kubernetes version", id="no version"),
        pytest.param("", "1.34.x", False, "not a Kubernetes version", id="no version, new"),
    ],
)
def test_refused(running: str, wanted: str, rolling: bool, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_upgrade(running, wanted, rolling=rolling)
