"""Which version a cluster gets: requested, running or default."""

import msgspec
import pytest

from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.defaults import Defaults, version_of


@pytest.mark.parametrize(
    "requested, running, default, expected",
    [
        pytest.param("", "", "v1.36.3", "v1.36.3", id="new, without version"),
        pytest.param("", "v1.34.1", "v1.36.3", "v1.34.1", id="a newer default is for new ones"),
        pytest.param("v1.35.0", "v1.34.1", "v1.36.3", "v1.35.0", id="requested"),
        pytest.param("1.35.0", "", "v1.36.3", "v1.35.0", id="without the v"),
        pytest.param("v1.36", "", "v1.36.3", "v1.36.3", id="a minor, the default is of it"),
        pytest.param("v1.36", "v1.36.2", "v1.36.3", "v1.36.2", id="a minor that runs stays"),
        pytest.param("v1.36", "v1.35.9", "v1.36.3", "v1.36.3", id="the next minor"),
        pytest.param("v1.30", "", "v1.36.3", "v1.30.0", id="a minor nobody knows"),
        pytest.param("v1.3", "", "v1.36.3", "v1.3.0", id="a minor that only looks like it"),
    ],
)
def test_the_version_of_a_cluster(
    requested: str, running: str, default: str, expected: str
) -> None:
    tree = {"metadata": {"name": "c"}, "spec": {"version": requested}}
    app = msgspec.convert(tree, Kubernetes)
    assert (
        version_of(app, Defaults(regions=(), version=default, running_version=running)) == expected
    )
