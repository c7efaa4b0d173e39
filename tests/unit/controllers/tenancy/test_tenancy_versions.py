"""Which version a cluster gets: what it says, what it runs, what is usual here."""

import msgspec
import pytest

from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.defaults import Defaults, version_of


@pytest.mark.parametrize(
    "said, runs, usual, wanted",
    [
        pytest.param("", "", "v1.36.3", "v1.36.3", id="new, nothing said"),
        pytest.param("", "v1.34.1", "v1.36.3", "v1.34.1", id="a newer default is for new ones"),
        pytest.param("v1.35.0", "v1.34.1", "v1.36.3", "v1.35.0", id="said"),
        pytest.param("1.35.0", "", "v1.36.3", "v1.35.0", id="said without its letter"),
        pytest.param("v1.36", "", "v1.36.3", "v1.36.3", id="a minor, the default is of it"),
        pytest.param("v1.36", "v1.36.2", "v1.36.3", "v1.36.2", id="a minor that runs stays"),
        pytest.param("v1.36", "v1.35.9", "v1.36.3", "v1.36.3", id="the next minor"),
        pytest.param("v1.30", "", "v1.36.3", "v1.30.0", id="a minor nobody knows"),
        pytest.param("v1.3", "", "v1.36.3", "v1.3.0", id="a minor that only looks like it"),
    ],
)
def test_the_version_of_a_cluster(said: str, runs: str, usual: str, wanted: str) -> None:
    tree = {"metadata": {"name": "c"}, "spec": {"version": said}}
    app = msgspec.convert(tree, Kubernetes)
    assert version_of(app, Defaults(regions=(), version=usual, running_version=runs)) == wanted
