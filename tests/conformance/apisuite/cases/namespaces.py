"""Namespace lifecycle."""

from apisuite.case import MERGE, case, delete, get, patch, post, put, status_only
from apisuite.cases.bodies import CM, cm

NS = "/api/v1/namespaces"
MINE = f"{NS}/$ns"
OTHER = f"{NS}/o-$u"
HERE = CM.replace("$ns", "o-$u")
NEW = post(NS, {"metadata": {"name": "o-$u"}}, show="status")

CASES = (
    case(
        "a namespace is active and labelled",
        post(NS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "o-$u"}}),
        delete(OTHER, show="status"),
    ),
    case("a namespace with a bad name", post(NS, {"metadata": {"name": "a.b"}})),
    case(
        "a namespace of a generated name",
        post(
            NS,
            {"metadata": {"generateName": "g-$u-"}},
            only=("metadata.generateName", "status", "spec"),
        ),
    ),
    case(
        "the name label comes back",
        patch(
            MERGE,
            MINE,
            {"metadata": {"labels": {"kubernetes.io/metadata.name": None, "x": "1"}}},
            drop=("metadata.managedFields",),
        ),
    ),
    case(
        "status is not changed by a patch of the namespace",
        patch(MERGE, MINE, {"status": {"phase": "Terminating"}}, only=("status",)),
    ),
    case(
        "deleting a namespace tells the one deleted",
        NEW,
        delete(OTHER, only=("kind", "metadata.name", "status.phase", "spec.finalizers")),
    ),
    case(
        "a namespace goes with its content",
        NEW,
        status_only(post(HERE, cm("a"))),
        status_only(delete(OTHER)),
        get(OTHER, until=("status", 404)),
        get(f"{HERE}/a"),
    ),
    case(
        "nothing is made in a namespace that is going",
        NEW,
        status_only(post(HERE, cm("a", finalizers=["example.com/hold"]))),
        status_only(delete(OTHER)),
        post(HERE, cm("b")),
        patch(MERGE, f"{HERE}/a", {"metadata": {"finalizers": None}}, show="status"),
        get(OTHER, until=("status", 404)),
    ),
    case(
        "what is there can still be changed",
        NEW,
        status_only(post(HERE, cm("a", finalizers=["example.com/hold"]))),
        status_only(delete(OTHER)),
        get(f"{HERE}/a", until=("metadata.deletionGracePeriodSeconds", 0), show="status"),
        patch(MERGE, f"{HERE}/a", {"data": {"k": "v"}}, only=("data",)),
        patch(MERGE, f"{HERE}/a", {"metadata": {"finalizers": None}}, show="status"),
        get(OTHER, until=("status", 404)),
    ),
    case(
        "a namespace that waits says for what",
        NEW,
        status_only(post(HERE, cm("a", finalizers=["example.com/hold"]))),
        status_only(delete(OTHER)),
        get(
            OTHER,
            until=("status.conditions[type=NamespaceFinalizersRemaining].status", "True"),
            only=(
                "status.phase",
                "status.conditions[type=NamespaceFinalizersRemaining].message",
                "status.conditions[type=NamespaceContentRemaining].reason",
            ),
        ),
        patch(MERGE, f"{HERE}/a", {"metadata": {"finalizers": None}}, show="status"),
        get(OTHER, until=("status", 404)),
    ),
    case(
        "the finalize subresource",
        post(
            NS,
            {
                "metadata": {"name": "o-$u"},
                "spec": {"finalizers": ["kubernetes", "example.com/hold"]},
            },
            only=("spec",),
        ),
        delete(OTHER, only=("status.phase",)),
        get(OTHER, until=("spec.finalizers", ["example.com/hold"]), only=("spec",)),
        put(
            f"{OTHER}/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "o-$u"},
                "spec": {"finalizers": []},
            },
            show="status",
        ),
        get(OTHER, until=("status", 404)),
    ),
    case("default cannot be deleted", delete(f"{NS}/default")),
    case("kube-system cannot be deleted", delete(f"{NS}/kube-system")),
    case("namespaces have no collection to delete", delete(NS)),
    case("a namespace that is not there", get(f"{NS}/no-$u")),
    case(
        "those that are always there",
        get(
            f"{NS}?fieldSelector=metadata.name%3Ddefault",
            drop=(
                "items.*.metadata.managedFields",
                "items.*.metadata.uid",
                "items.*.metadata.resourceVersion",
            ),
        ),
    ),
    case(
        "by phase",
        get(
            f"{NS}?fieldSelector=status.phase%3DActive,metadata.name%3D$ns",
            only=("items[0].metadata.name", "items[1]"),
        ),
    ),
    case(
        "a service account appears",
        get(
            "/api/v1/namespaces/$ns/serviceaccounts/default",
            until=("status", 200),
            only=("kind", "metadata.name"),
        ),
    ),
    case(
        "a root certificate appears",
        get(
            "/api/v1/namespaces/$ns/configmaps/kube-root-ca.crt",
            until=("status", 200),
            only=("kind", "metadata.name"),
        ),
    ),
)
