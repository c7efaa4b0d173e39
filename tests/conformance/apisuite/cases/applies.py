"""Server-side apply: ownership, conflicts, force, removal of fields."""

from apisuite.case import (
    APPLY,
    MERGE,
    case,
    delete,
    get,
    patch,
    post,
    put,
    server_side_apply,
    status_only,
)
from apisuite.cases.bodies import CM, DEPLOYMENTS, SERVICES, cm, deployment

P = f"{CM}/a"


def service(*ports: dict[str, object], **spec: object) -> dict[str, object]:
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    return {**head, "spec": {"clusterIP": "None", "ports": list(ports), **spec}}


S = f"{SERVICES}/s"
PORTS = ("spec.ports", "metadata.managedFields")
HTTP, ALT = {"port": 80, "name": "http"}, {"port": 81, "name": "alt"}

CASES = (
    case("apply creates", server_side_apply(P, "one", cm("a", {"k": "1"}))),
    case(
        "apply of the same writes nothing",
        server_side_apply(P, "one", cm("a", {"k": "1"})),
        server_side_apply(P, "one", cm("a", {"k": "1"})),
    ),
    case(
        "apply takes YAML",
        patch(
            APPLY,
            f"{P}?fieldManager=one",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n",
        ),
    ),
    case(
        "apply changes what is its own",
        server_side_apply(P, "one", cm("a", {"k": "1"})),
        server_side_apply(P, "one", cm("a", {"k": "2"})),
    ),
    case(
        "what is no longer applied leaves",
        server_side_apply(P, "one", cm("a", {"k": "1", "l": "1"})),
        server_side_apply(P, "one", cm("a", {"k": "1"})),
    ),
    case(
        "everything no longer applied leaves",
        server_side_apply(P, "one", cm("a", {"k": "1"}, labels={"x": "y"})),
        server_side_apply(P, "one", cm("a")),
    ),
    case(
        "two managers own different fields",
        server_side_apply(P, "one", cm("a", {"k": "1"})),
        server_side_apply(P, "two", cm("a", {"l": "2"})),
    ),
    case(
        "two managers agree on a field",
        server_side_apply(P, "one", cm("a", {"k": "1"})),
        server_side_apply(P, "two", cm("a", {"k": "1"})),
    ),
    case(
        "a shared field stays until the last manager removes it",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        status_only(server_side_apply(P, "two", cm("a", {"k": "1"}))),
        server_side_apply(P, "one", cm("a")),
        server_side_apply(P, "two", cm("a")),
    ),
    case(
        "another's value is a conflict",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        server_side_apply(P, "two", cm("a", {"k": "2"})),
    ),
    case(
        "several conflicts in one answer",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1", "l": "1"}))),
        server_side_apply(P, "two", cm("a", {"k": "2", "l": "2"})),
    ),
    case(
        "conflicts with two owners",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        status_only(server_side_apply(P, "two", cm("a", {"l": "1"}))),
        server_side_apply(P, "three", cm("a", {"k": "2", "l": "2"})),
    ),
    case(
        "force takes the field",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1", "l": "1"}))),
        server_side_apply(P, "two", cm("a", {"k": "2"}), force=True),
    ),
    case(
        "an update takes the field",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1", "l": "1"}))),
        patch(MERGE, f"{P}?fieldManager=up", {"data": {"k": "2"}}),
    ),
    case(
        "a conflict with an updater",
        status_only(post(f"{CM}?fieldManager=up", cm("a", {"k": "1"}))),
        server_side_apply(P, "one", cm("a", {"k": "2"})),
    ),
    case(
        "an update of the same value takes nothing",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        put(f"{P}?fieldManager=up", cm("a", {"k": "1"})),
    ),
    case(
        "an update that removes an owned field",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1", "l": "1"}))),
        patch(MERGE, f"{P}?fieldManager=up", {"data": {"k": None}}),
    ),
    case(
        "labels and annotations are owned one by one",
        server_side_apply(P, "one", cm("a", labels={"x": "1"}, annotations={"n": "1"})),
        server_side_apply(P, "two", cm("a", labels={"y": "1"})),
        server_side_apply(P, "one", cm("a")),
    ),
    case(
        "finalizers are a set",
        server_side_apply(P, "one", cm("a", finalizers=["a.b/c"])),
        server_side_apply(P, "two", cm("a", finalizers=["a.b/d"])),
        server_side_apply(P, "one", cm("a")),
        server_side_apply(P, "two", cm("a")),
    ),
    case(
        "owner references by uid",
        status_only(post(CM, cm("o"))),
        get(f"{CM}/o", save={"uid": "metadata.uid"}),
        server_side_apply(
            P,
            "one",
            cm(
                "a",
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "$uid"}
                ],
            ),
        ),
    ),
    case("apply under another name", server_side_apply(P, "one", cm("b"))),
    case("apply without a name", server_side_apply(P, "one", cm())),
    case("apply without a kind", server_side_apply(P, "one", {"metadata": {"name": "a"}})),
    case("apply of another kind", server_side_apply(P, "one", {**cm("a"), "kind": "Secret"})),
    case(
        "apply with managed fields inside",
        server_side_apply(P, "one", cm("a", managedFields=[{"manager": "x"}])),
    ),
    case(
        "apply with a resource version that holds",
        server_side_apply(P, "one", cm("a", {"k": "1"}), save={"rv": "metadata.resourceVersion"}),
        server_side_apply(P, "one", cm("a", {"k": "2"}, resourceVersion="$rv")),
        server_side_apply(P, "one", cm("a", {"k": "3"}, resourceVersion="$rv")),
    ),
    case(
        "apply to what is gone creates it anew",
        status_only(server_side_apply(P, "one", cm("a"))),
        status_only(delete(P)),
        server_side_apply(P, "one", cm("a", {"k": "1"})),
    ),
    case(
        "apply with a uid to what is not there",
        server_side_apply(P, "one", cm("a", uid="6a7dd4a5-0000-4000-8000-000000000000")),
    ),
    case("apply of an unknown field", server_side_apply(P, "one", {**cm("a"), "nope": 1})),
    case("apply of nothing", patch(APPLY, f"{P}?fieldManager=one", "")),
    case(
        "clearing managed fields",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        patch(MERGE, P, {"metadata": {"managedFields": [{}]}}),
        patch(MERGE, f"{P}?fieldManager=up", {"data": {"k": "2"}}),
        server_side_apply(P, "two", cm("a", {"k": "2"})),
    ),
    case(
        "a manager that applies and updates",
        status_only(server_side_apply(P, "one", cm("a", {"k": "1"}))),
        patch(MERGE, f"{P}?fieldManager=one", {"data": {"k": "2"}}),
        server_side_apply(P, "one", cm("a", {"k": "3"})),
    ),
    case(
        "list by key: two managers",
        server_side_apply(S, "one", service(HTTP), only=PORTS),
        server_side_apply(S, "two", service(ALT), only=PORTS),
    ),
    case(
        "list by key: an item leaves",
        server_side_apply(S, "one", service(HTTP, ALT), only=PORTS),
        server_side_apply(S, "one", service(HTTP), only=PORTS),
    ),
    case(
        "list by key: a field of an item conflicts",
        server_side_apply(S, "one", service(HTTP), only=PORTS),
        server_side_apply(S, "two", service({"port": 80, "name": "other"})),
    ),
    case(
        "list by key: default key is filled in",
        server_side_apply(S, "one", service({"port": 80, "protocol": "TCP"}), only=PORTS),
    ),
    case(
        "a map that is atomic",
        server_side_apply(
            S,
            "one",
            service(HTTP, selector={"a": "1", "b": "1"}),
            only=("spec.selector", "metadata.managedFields"),
        ),
        server_side_apply(S, "two", service(HTTP, selector={"a": "1"})),
    ),
    case(
        "containers by name",
        server_side_apply(
            f"{DEPLOYMENTS}/d",
            "one",
            deployment("d", 0),
            only=("metadata.managedFields[manager=one]", "spec.template.spec.containers[0].name"),
        ),
        server_side_apply(
            f"{DEPLOYMENTS}/d",
            "two",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d"},
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]
                        }
                    }
                },
            },
            only=("metadata.managedFields[manager=two]", "spec.template.spec.containers[0].env"),
        ),
    ),
    case(
        "scaling takes replicas from its applier",
        status_only(server_side_apply(f"{DEPLOYMENTS}/d", "one", deployment("d", 0))),
        patch(
            MERGE,
            f"{DEPLOYMENTS}/d/scale?fieldManager=hpa",
            {"spec": {"replicas": 2}},
            drop=("metadata.managedFields", "metadata.resourceVersion", "status.replicas"),
        ),
        server_side_apply(f"{DEPLOYMENTS}/d", "one", deployment("d", 0)),
    ),
    case(
        "a dry run applies nothing",
        patch(APPLY, f"{P}?fieldManager=one&dryRun=All", cm("a", {"k": "1"})),
        get(P),
    ),
)
