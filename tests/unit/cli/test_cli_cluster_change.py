"""The commands that change a tenant cluster: their arguments, the change, and its plan."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import Resource
from moxwell.cli.cluster import ClusterOptions, scaled, write_change
from moxwell.cli.cluster_commands import app
from moxwell.cli.connect import NotRunning
from moxwell.errors import Invalid, Missing
from moxwell.kube.client import Kube
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.loop import LoopClock, run_virtual

SPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
AUTO = {"name": "auto", "minReplicas": 0, "maxReplicas": 3}
SPEC: dict[str, Any] = {"version": "v1.34.1", "nodeGroups": [{"name": "md0", "replicas": 1}, AUTO]}


@pytest.mark.parametrize(
    "words",
    [
        "scale c md0 2",
        "upgrade c v1.35.0",
        "delete c",
        "nodegroup add c big --nodes 1 --size u1.medium --regions north",
        "nodegroup remove c big",
        "nodegroup resize c big u1.small",
    ],
)
def test_arguments_come_before_options(words: str) -> None:
    options = "-n space --name not-there --no-wait --timeout 5 --plan -o json"
    done = CliRunner().invoke(app, [*words.split(), *options.split()])
    assert isinstance(done.exception, NotRunning), done.output


def with_cluster(then: Callable[[Kube], Awaitable[None]]) -> None:
    """Run against an API that has the cluster ``c``."""

    async def story() -> None:
        async with open_store(LoopClock()) as store:
            kube = Kube(store)
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}
            await kube.create(space, SPACES)
            head = {"apiVersion": Kubernetes.resource.api_version, "kind": "Kubernetes"}
            meta = {"name": "c", "namespace": "space"}
            await kube.create({**head, "metadata": meta, "spec": SPEC}, Kubernetes.resource)
            await then(kube)

    run_virtual(story())


def replicas(tree: dict[str, Any]) -> list[int | None]:
    return [group.get("replicas") for group in tree["spec"]["nodeGroups"]]


@pytest.mark.parametrize("planned", [False, True])
def test_a_plan_writes_nothing(planned: bool) -> None:
    options = ClusterOptions("c", namespace="space", planned=planned)

    async def then(kube: Kube) -> None:
        document = await write_change(kube, options, lambda found: scaled(found, "md0", 4))
        stored = await kube.get(Kubernetes.resource, "c", "space")
        assert stored["spec"]["nodeGroups"][1] == AUTO
        assert replicas(stored) == ([1, None] if planned else [4, None])
        assert (document is not None) == planned
        assert document is None or replicas(document) == [4, None]

    with_cluster(then)


@pytest.mark.parametrize(
    "cluster, group, error, text",
    [
        pytest.param("c", "auto", Invalid, "autoscaled", id="an autoscaled group"),
        pytest.param("c", "md1", Missing, "groups are md0, auto", id="an unknown group"),
        pytest.param("d", "md0", Missing, "clusters are space/c", id="an unknown cluster"),
    ],
)
def test_what_cannot_be_scaled_is_refused(
    cluster: str, group: str, error: type[Exception], text: str
) -> None:
    async def then(kube: Kube) -> None:
        options = ClusterOptions(cluster, namespace="space")
        with pytest.raises(error, match=text):
            await write_change(kube, options, lambda found: scaled(found, group, 4))

    with_cluster(then)
