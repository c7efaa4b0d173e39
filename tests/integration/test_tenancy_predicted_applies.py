"""The predicted result of a server-side apply is what the API server computes, for random specs."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.apply_prediction import differences, needs_apply, predict_apply
from moxwell.controllers.tenancy.cluster.autoscaling import MANAGER
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.cluster.plan import RESOURCES, TEMPLATES
from moxwell.kube.client import Kube
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.tenancy import NAMESPACES, SPACE

Json = dict[str, Any]
DEFAULTS = Defaults(
    regions=(
        RegionDefaults(name="north", pool="north-nodes", dns=("10.0.0.1",)),
        RegionDefaults(name="south"),
    )
)
GROUP = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 3),
        "minReplicas": st.integers(0, 2),
        "maxReplicas": st.integers(2, 5),
        "regions": st.sampled_from([["north"], ["south"], ["north", "south"]]),
        "zones": st.sampled_from([["pve1"], ["pve1", "pve2"]]),
        "roles": st.sampled_from([[], ["a"], ["a", "b"]]),
        "maxUnhealthy": st.sampled_from([1, "40%"]),
    },
)
SPEC = st.fixed_dictionaries(
    {"nodeGroups": st.dictionaries(st.just("a"), GROUP, min_size=1)},
    optional={
        "host": st.sampled_from(["", "a.example", "b.example"]),
        "version": st.sampled_from(["v1.34.1", "v1.35.0"]),
        "network": st.sampled_from(
            [
                {"addresses": ["10.1.0.0/24"], "gateway": "10.1.0.1"},
                {"pool": "own", "dnsServers": ["10.1.0.2"]},
            ]
        ),
    },
)


def objects(spec: Json) -> list[Json]:
    meta = {"name": "c1", "namespace": SPACE, "uid": "11111111-2222-3333-4444-555555555555"}
    app = msgspec.convert({"metadata": meta, "spec": spec}, Kubernetes)
    return [o for o in expand(app, DEFAULTS) if o["kind"] not in TEMPLATES]


async def check(kube: Kube, obj: Json) -> None:
    resource, name = RESOURCES[obj["kind"]], obj["metadata"]["name"]
    found = await kube.find(resource, name, SPACE)
    after = await kube.apply(obj, resource, manager=MANAGER, force=True)
    if found is not None:
        assert differences(predict_apply(found, obj, MANAGER), after) == ()
    assert not needs_apply(after, obj, MANAGER)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@given(st.lists(SPEC, min_size=2, max_size=5))
def test_predictions_match_the_api_server(specs: list[Json]) -> None:
    async def story() -> None:
        store = open_store(LoopClock())
        await store.start()
        kube = Kube(store).with_managed_fields()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        await kube.create(space, NAMESPACES)
        for spec in specs:
            for obj in objects(spec):
                await check(kube, obj)
        await store.stop()

    run_virtual(story())
