"""Strategic merge patch of built-in kinds."""

from apisuite.case import STRATEGIC, ApiRequest, case, patch, post, status_only
from apisuite.cases.bodies import ACCOUNTS, CM, DEPLOYMENTS, SERVICES, cm, deployment

D = status_only(post(DEPLOYMENTS, deployment("d", 0)))
P = f"{DEPLOYMENTS}/d"
CONTAINERS = "spec.template.spec.containers"
SHOW = ("metadata.generation", CONTAINERS, "spec.strategy", "spec.template.spec.volumes")


def on_pod(**spec: object) -> dict[str, object]:
    return {"spec": {"template": {"spec": spec}}}


def smp(body: object) -> ApiRequest:
    return patch(STRATEGIC, P, body, only=SHOW)


TWO = status_only(
    patch(
        STRATEGIC,
        P,
        on_pod(
            containers=[{"name": "side", "image": "y"}],
            volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
        ),
    )
)
S = status_only(
    post(
        SERVICES,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "finalizers": ["a.b/c", "a.b/d"]},
            "spec": {
                "clusterIP": "None",
                "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
            },
        },
    )
)
PORTS = ("spec.ports", "metadata.finalizers")

CASES = (
    case(
        "a map merges",
        status_only(post(CM, cm("a", {"k": "v"}))),
        patch(STRATEGIC, f"{CM}/a", {"data": {"l": "w"}}),
    ),
    case(
        "null removes",
        status_only(post(CM, cm("a", {"k": "v", "l": "w"}))),
        patch(STRATEGIC, f"{CM}/a", {"data": {"l": None}}),
    ),
    case(
        "map replaced as a whole",
        status_only(post(CM, cm("a", {"k": "v"}))),
        patch(STRATEGIC, f"{CM}/a", {"data": {"$patch": "replace", "l": "w"}}),
    ),
    case(
        "map deleted",
        status_only(post(CM, cm("a", {"k": "v"}))),
        patch(STRATEGIC, f"{CM}/a", {"data": {"$patch": "delete"}}),
    ),
    case(
        "list merges by key",
        D,
        smp(on_pod(containers=[{"name": "main", "image": "new"}])),
    ),
    case("list adds by key", D, smp(on_pod(containers=[{"name": "side", "image": "y"}]))),
    case(
        "list item deleted by key",
        D,
        TWO,
        smp(on_pod(containers=[{"name": "side", "$patch": "delete"}])),
    ),
    case(
        "list replaced as a whole",
        D,
        TWO,
        smp(on_pod(containers=[{"$patch": "replace"}, {"name": "only", "image": "z"}])),
    ),
    case(
        "order of a list",
        D,
        TWO,
        smp(
            on_pod(
                **{
                    "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
                    "containers": [{"name": "main", "image": "q"}],
                }
            )
        ),
    ),
    case(
        "keys to retain",
        D,
        smp({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    ),
    case(
        "a volume changes its kind",
        D,
        TWO,
        smp(
            on_pod(
                volumes=[
                    {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}
                ]
            )
        ),
    ),
    case(
        "nested list by key",
        D,
        smp(on_pod(containers=[{"name": "main", "env": [{"name": "A", "value": "1"}]}])),
        smp(
            on_pod(
                containers=[
                    {
                        "name": "main",
                        "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
                    }
                ]
            )
        ),
    ),
    case("a list item without its key", D, smp(on_pod(containers=[{"image": "y"}]))),
    case(
        "an atomic list is replaced",
        D,
        smp(on_pod(containers=[{"name": "main", "args": ["a", "b"]}])),
        smp(on_pod(containers=[{"name": "main", "args": ["c"]}])),
    ),
    case(
        "ports by their number",
        S,
        patch(
            STRATEGIC,
            f"{SERVICES}/s",
            {"spec": {"ports": [{"port": 81, "name": "bb"}, {"port": 82, "name": "c"}]}},
            only=PORTS,
        ),
    ),
    case(
        "a primitive list merges",
        S,
        patch(STRATEGIC, f"{SERVICES}/s", {"metadata": {"finalizers": ["a.b/e"]}}, only=PORTS),
    ),
    case(
        "from a primitive list",
        S,
        patch(
            STRATEGIC,
            f"{SERVICES}/s",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}},
            only=PORTS,
        ),
        patch(STRATEGIC, f"{SERVICES}/s", {"metadata": {"finalizers": None}}, only=PORTS),
    ),
    case("an unknown directive", D, smp({"spec": {"strategy": {"$patch": "odd"}}})),
    case("the wrong type", D, smp({"spec": {"replicas": "many"}})),
    case("the result is checked", D, smp({"spec": {"replicas": -1}})),
    case(
        "image pull secrets",
        status_only(
            post(
                ACCOUNTS,
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "x"},
                    "imagePullSecrets": [{"name": "a"}],
                },
            )
        ),
        patch(STRATEGIC, f"{ACCOUNTS}/x", {"imagePullSecrets": [{"name": "b"}]}),
    ),
)
