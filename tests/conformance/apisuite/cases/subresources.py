"""Status, scale, binding, eviction, tokens and events."""

from apisuite.case import MERGE, ApiRequest, case, delete, get, patch, post, put, status_only
from apisuite.cases.bodies import ACCOUNTS, APPS, CORE, DEPLOYMENTS, PODS, Body, deployment, pod

D = f"{DEPLOYMENTS}/d"
NEW = status_only(post(DEPLOYMENTS, deployment("d", 0)))
SCALE = {
    "apiVersion": "autoscaling/v1",
    "kind": "Scale",
    "metadata": {"name": "d", "namespace": "$ns"},
}
STILL = ("metadata.resourceVersion", "metadata.managedFields")
EVENTS = f"{CORE}/events"
MODERN = "/apis/events.k8s.io/v1/namespaces/$ns/events"
PDBS = "/apis/policy/v1/namespaces/$ns/poddisruptionbudgets"
NODES = "/api/v1/nodes"
TOKEN = f"{ACCOUNTS}/default/token"
READY = get(f"{ACCOUNTS}/default", until=("status", 200), show="status")
BOUND = ("spec.nodeName", "status.conditions[type=PodScheduled].status", "status.phase")


def binding(node: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def eviction(name: str = "p", **options: object) -> Body:
    head: Body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "$ns"},
    }
    return {**head, "deleteOptions": options} if options else head


def event(name: str, **more: object) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "$ns", "name": "p", "apiVersion": "v1"},
        "reason": "Tested",
        "message": "hello",
        "type": "Normal",
        "source": {"component": "suite"},
        "firstTimestamp": "2020-01-01T00:00:00Z",
        "lastTimestamp": "2020-01-01T00:00:00Z",
        "count": 1,
        **more,
    }


def evented(name: str, body: Body) -> ApiRequest:
    return post(EVENTS, event(name, **body), show="status")


CASES = (
    case("scale of a deployment", NEW, get(f"{D}/scale", drop=STILL)),
    case("scale replaced", NEW, put(f"{D}/scale", {**SCALE, "spec": {"replicas": 0}}, drop=STILL)),
    case(
        "scale patched",
        status_only(post(DEPLOYMENTS, deployment("d", 0, paused=True))),
        patch(MERGE, f"{D}/scale", {"spec": {"replicas": 0}}, drop=STILL),
        get(D, only=("spec.replicas",)),
    ),
    case(
        "scale to less than nothing",
        NEW,
        patch(MERGE, f"{D}/scale", {"spec": {"replicas": -1}}, drop=("message",)),
    ),
    case("scale of what is not there", get(f"{DEPLOYMENTS}/none/scale")),
    case("scale of a kind that has none", get("/api/v1/namespaces/$ns/configmaps/a/scale")),
    case(
        "status of a deployment is a write of its own",
        status_only(post(DEPLOYMENTS, {**deployment("d", 0), "status": {"replicas": 5}})),
        get(D, only=("status.replicas",)),
        patch(
            MERGE,
            f"{D}/status",
            {"spec": {"replicas": 9}, "metadata": {"labels": {"a": "b"}}},
            only=("spec.replicas", "metadata.labels"),
        ),
    ),
    case("a subresource nobody knows", NEW, get(f"{D}/odd")),
    case(
        "a pod is bound",
        status_only(post(PODS, pod("p"))),
        post(f"{PODS}/p/binding", binding("n-$u")),
        get(f"{PODS}/p", only=BOUND),
    ),
    case(
        "a pod is bound through bindings",
        status_only(post(PODS, pod("p"))),
        post(f"{CORE}/bindings", binding("n-$u")),
        get(f"{PODS}/p", only=("spec.nodeName",)),
    ),
    case(
        "a pod is bound once",
        status_only(post(PODS, pod("p"))),
        status_only(post(f"{PODS}/p/binding", binding("n-$u"))),
        post(f"{PODS}/p/binding", binding("m-$u")),
    ),
    case(
        "a pod is bound to something",
        status_only(post(PODS, pod("p"))),
        post(f"{PODS}/p/binding", binding("")),
    ),
    case(
        "a binding of what is not there",
        post(f"{PODS}/none/binding", {**binding("n"), "metadata": {"name": "none"}}),
    ),
    case(
        "eviction of a pod",
        status_only(post(PODS, pod("p"))),
        post(f"{PODS}/p/eviction", eviction()),
        get(f"{PODS}/p", until=("status", 404)),
    ),
    case(
        "eviction as a dry run",
        status_only(post(PODS, pod("p"))),
        post(f"{PODS}/p/eviction", eviction(dryRun=["All"])),
        get(f"{PODS}/p", only=("metadata.deletionTimestamp",)),
    ),
    case("eviction of what is not there", post(f"{PODS}/none/eviction", eviction("none"))),
    case(
        "eviction under another name",
        status_only(post(PODS, pod("p"))),
        post(f"{PODS}/p/eviction", eviction("q")),
    ),
    case(
        "eviction against a budget",
        status_only(post(PODS, pod("p", nodeName="n-$u"))),
        patch(
            MERGE,
            f"{PODS}/p/status",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            show="status",
        ),
        post(
            PDBS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
            },
            show="status",
        ),
        get(
            f"{PDBS}/b",
            until=("status.expectedPods", 1),
            only=(
                "status.disruptionsAllowed",
                "status.currentHealthy",
                "status.desiredHealthy",
                "status.expectedPods",
            ),
        ),
        post(f"{PODS}/p/eviction", eviction()),
        delete(f"{PODS}/p?gracePeriodSeconds=0", show="status"),
    ),
    case(
        "a budget as created",
        post(
            PDBS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "no"}}},
            },
            drop=("metadata.managedFields",),
        ),
    ),
    case(
        "a budget of both kinds",
        post(
            PDBS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b"},
                "spec": {"maxUnavailable": 1, "minAvailable": 1},
            },
        ),
    ),
    case(
        "a token for a service account",
        READY,
        post(
            TOKEN,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
            save={"token": "status.token"},
            drop=("status.token", "metadata.managedFields"),
        ),
    ),
    case(
        "a token for an audience",
        READY,
        post(
            TOKEN,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": ["a"], "expirationSeconds": 600},
            },
            save={"token": "status.token"},
            only=("spec", "kind"),
        ),
    ),
    case(
        "a token that lives too short",
        READY,
        post(
            TOKEN,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 5},
            },
        ),
    ),
    case("a token for nobody", post(f"{ACCOUNTS}/none/token", {"spec": {}})),
    case("an event", post(EVENTS, event("e"))),
    case(
        "an event in another namespace",
        post(EVENTS, event("e", involvedObject={"kind": "Pod", "namespace": "other", "name": "p"})),
    ),
    case(
        "events by what they are about",
        evented("e", {}),
        evented(
            "f",
            {"involvedObject": {"kind": "Pod", "namespace": "$ns", "name": "q"}, "reason": "Other"},
        ),
        get(
            f"{EVENTS}?fieldSelector=involvedObject.name%3Dq",
            only=("items[0].metadata.name", "items[1]"),
        ),
        get(
            f"{EVENTS}?fieldSelector=reason%3DTested,type%3DNormal",
            only=("items[0].metadata.name", "items[1]"),
        ),
    ),
    case(
        "an old event in the new form",
        evented("e", {}),
        get(f"{MODERN}/e", drop=("metadata.managedFields",)),
    ),
    case(
        "a new event in the old form",
        post(
            MODERN,
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "n"},
                "eventTime": "2020-01-01T00:00:00.000000Z",
                "reportingController": "example.com/suite",
                "reportingInstance": "one",
                "action": "Testing",
                "reason": "Tested",
                "type": "Normal",
                "note": "hello",
                "regarding": {"kind": "Pod", "namespace": "$ns", "name": "p"},
            },
            drop=("metadata.managedFields",),
        ),
        get(f"{EVENTS}/n", drop=("metadata.managedFields",)),
    ),
    case(
        "a new event must be whole",
        post(
            MODERN,
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "n"},
                "note": "hello",
                "regarding": {"namespace": "$ns"},
            },
        ),
    ),
    case(
        "a node's status is written apart",
        post(
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n-$u"},
                "spec": {"providerID": "x://1"},
            },
            only=("spec.providerID", "status.capacity"),
        ),
        patch(
            MERGE,
            f"{NODES}/n-$u/status",
            {"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}},
            only=("status.capacity", "status.allocatable"),
        ),
        delete(f"{NODES}/n-$u", only=("status", "details.name")),
    ),
    case(
        "a node's provider is set once",
        status_only(post(NODES, {"metadata": {"name": "n-$u"}, "spec": {"providerID": "x://1"}})),
        patch(
            MERGE,
            f"{NODES}/n-$u",
            {"spec": {"providerID": "x://2"}},
            drop=("details.causes.*.message", "message"),
        ),
        delete(f"{NODES}/n-$u", show="status"),
    ),
    case(
        "nodes by field",
        status_only(post(NODES, {"metadata": {"name": "n-$u"}, "spec": {"unschedulable": True}})),
        get(
            f"{NODES}?fieldSelector=spec.unschedulable%3Dtrue,metadata.name%3Dn-$u",
            only=("items[0].metadata.name",),
        ),
        delete(f"{NODES}/n-$u", show="status"),
    ),
    case(
        "a replica set's scale",
        status_only(
            post(
                f"{APPS}/replicasets",
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "metadata": {"name": "r"},
                    "spec": deployment("r", 0)["spec"],
                },
            )
        ),
        get(f"{APPS}/replicasets/r/scale", drop=STILL),
    ),
)
