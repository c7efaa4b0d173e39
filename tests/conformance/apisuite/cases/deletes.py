"""Deletion: preconditions, finalizers, propagation, collections, garbage collection."""

from apisuite.case import JSON_PATCH, MERGE, case, delete, get, patch, post, put, status_only
from apisuite.cases.bodies import CM, DEPLOYMENTS, PODS, Body, cm, deployment, pod

P = f"{CM}/a"
A = status_only(post(CM, cm("a", {"k": "v"})))
HELD = post(CM, cm("a", {"k": "v"}, finalizers=["example.com/hold"]), show="status")
RELEASE = patch(JSON_PATCH, P, [{"op": "remove", "path": "/metadata/finalizers"}])
OWNER = post(CM, cm("owner"), save={"uid": "metadata.uid"}, show="status")


def options(**more: object) -> Body:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **more}


def owned(name: str, **ref: object) -> Body:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "$uid", **ref}
    return cm(name, ownerReferences=[one])


CHILD = status_only(post(CM, owned("child")))
GONE = ("status", 404)

CASES = (
    case(
        "a precondition of the uid that fails",
        A,
        delete(P, options(preconditions={"uid": "x"}), drop=("message",)),
    ),
    case(
        "a precondition of the uid that holds",
        post(CM, cm("a"), save={"uid": "metadata.uid"}),
        delete(P, options(preconditions={"uid": "$uid"})),
    ),
    case(
        "a precondition of the revision that fails",
        A,
        delete(P, options(preconditions={"resourceVersion": "1"}), drop=("message",)),
    ),
    case("an odd propagation policy", A, delete(f"{P}?propagationPolicy=Odd")),
    case(
        "policy and orphanDependents together",
        A,
        delete(P, options(propagationPolicy="Background", orphanDependents=True)),
    ),
    case("a negative grace period", A, delete(f"{P}?gracePeriodSeconds=-5", drop=("message",))),
    case(
        "options that are not options",
        A,
        delete(P, {"kind": "ConfigMap", "apiVersion": "v1"}, drop=("message",)),
    ),
    case("a finalizer holds", HELD, delete(P), get(P)),
    case(
        "a held object goes with its last finalizer", HELD, status_only(delete(P)), RELEASE, get(P)
    ),
    case("a second deletion changes nothing", HELD, delete(P), delete(P)),
    case(
        "a held object can be changed",
        HELD,
        status_only(delete(P)),
        patch(MERGE, P, {"data": {"k": "w"}}),
    ),
    case(
        "no finalizer joins a held object",
        HELD,
        status_only(delete(P)),
        patch(MERGE, P, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
    ),
    case(
        "a held object can be released by replacing it",
        HELD,
        status_only(delete(P)),
        put(P, cm("a")),
        get(P),
    ),
    case("a finalizer must have a good name", post(CM, cm("a", finalizers=["no slash"]))),
    case(
        "a plain finalizer draws a warning",
        post(
            CM,
            cm("a", finalizers=["example.com/x", "plain"]),
            only=("reason", "message", "metadata.finalizers"),
        ),
        patch(MERGE, P, {"metadata": {"finalizers": None}}, show="status"),
    ),
    case("create over a held object", HELD, status_only(delete(P)), post(CM, cm("a"))),
    case(
        "background: dependants follow",
        OWNER,
        CHILD,
        delete(f"{CM}/owner?propagationPolicy=Background"),
        get(f"{CM}/child", until=GONE),
    ),
    case(
        "by default dependants follow",
        OWNER,
        CHILD,
        delete(f"{CM}/owner"),
        get(f"{CM}/child", until=GONE),
    ),
    case(
        "orphan: dependants stay without their owner",
        OWNER,
        CHILD,
        delete(f"{CM}/owner?propagationPolicy=Orphan"),
        get(f"{CM}/owner", until=GONE),
        get(f"{CM}/child", drop=("metadata.managedFields",)),
    ),
    case(
        "foreground: the owner goes last",
        OWNER,
        status_only(
            post(
                CM,
                {
                    **owned("child", blockOwnerDeletion=True),
                    "metadata": {
                        **owned("child", blockOwnerDeletion=True)["metadata"],
                        "finalizers": ["example.com/hold"],
                    },
                },
            )
        ),
        delete(f"{CM}/owner?propagationPolicy=Foreground"),
        get(
            f"{CM}/child",
            until=("metadata.deletionGracePeriodSeconds", 0),
            only=("metadata.finalizers", "metadata.deletionGracePeriodSeconds"),
        ),
        get(f"{CM}/owner", only=("metadata.finalizers", "metadata.deletionTimestamp")),
        patch(MERGE, f"{CM}/child", {"metadata": {"finalizers": None}}, show="status"),
        get(f"{CM}/owner", until=GONE),
        get(f"{CM}/child", until=GONE),
    ),
    case(
        "foreground: with dependants that do not block",
        OWNER,
        CHILD,
        delete(f"{CM}/owner?propagationPolicy=Foreground", drop=("metadata.managedFields",)),
        get(f"{CM}/owner", until=GONE),
        get(f"{CM}/child", until=GONE),
    ),
    case(
        "foreground: with no dependants",
        OWNER,
        delete(f"{CM}/owner?propagationPolicy=Foreground", drop=("metadata.managedFields",)),
        get(f"{CM}/owner", until=GONE),
    ),
    case(
        "a dependant of two owners stays with one",
        OWNER,
        post(CM, cm("second"), save={"other": "metadata.uid"}, show="status"),
        post(
            CM,
            cm(
                "child",
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "$uid"},
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "second", "uid": "$other"},
                ],
            ),
            show="status",
        ),
        status_only(delete(f"{CM}/owner")),
        get(
            f"{CM}/child",
            until=("metadata.ownerReferences[1]", "<absent>"),
            drop=("metadata.managedFields",),
            only=("metadata.ownerReferences",),
        ),
    ),
    case(
        "a dependant of nobody is collected",
        OWNER,
        status_only(delete(f"{CM}/owner")),
        status_only(post(CM, owned("child"))),
        get(f"{CM}/child", until=GONE),
    ),
    case(
        "an owner must be whole",
        post(CM, cm("a", ownerReferences=[{"kind": "ConfigMap", "name": "x"}])),
    ),
    case(
        "only one owner controls",
        post(
            CM,
            cm(
                "a",
                ownerReferences=[
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": n,
                        "uid": n,
                        "controller": True,
                    }
                    for n in ("x", "y")
                ],
            ),
        ),
    ),
    case(
        "a collection by label",
        *(status_only(post(CM, cm(n, labels={"n": n, "g": "1"}))) for n in ("a", "b", "c")),
        delete(f"{CM}?labelSelector=g,n!%3Db"),
        get(f"{CM}?labelSelector=g", only=("items[0].metadata.name", "items[1]")),
    ),
    case("a collection that matches nothing", delete(f"{CM}?labelSelector=no%3Dne")),
    case(
        "a collection with held ones",
        status_only(post(CM, cm("a", labels={"g": "1"}, finalizers=["example.com/hold"]))),
        delete(f"{CM}?labelSelector=g"),
        get(P, only=("metadata.deletionTimestamp", "metadata.finalizers")),
        patch(MERGE, P, {"metadata": {"finalizers": None}}, show="status"),
    ),
    case(
        "a pod that runs nowhere goes at once",
        status_only(post(PODS, pod("p"))),
        delete(
            f"{PODS}/p", only=("metadata.name", "metadata.deletionGracePeriodSeconds", "status")
        ),
        get(f"{PODS}/p", until=GONE),
    ),
    case(
        "a pod on a node gets its grace",
        status_only(post(PODS, pod("p", nodeName="n-$u"))),
        delete(f"{PODS}/p", only=("metadata.name", "metadata.deletionGracePeriodSeconds")),
        get(f"{PODS}/p", only=("metadata.deletionGracePeriodSeconds",)),
        delete(f"{PODS}/p?gracePeriodSeconds=0", show="status"),
        get(f"{PODS}/p", until=GONE),
    ),
    case(
        "a deployment's generation moves with its deletion",
        status_only(
            post(
                DEPLOYMENTS,
                {
                    **deployment("d", 0),
                    "metadata": {"name": "d", "finalizers": ["example.com/hold"]},
                },
            )
        ),
        status_only(delete(f"{DEPLOYMENTS}/d")),
        get(f"{DEPLOYMENTS}/d", only=("metadata.generation", "metadata.finalizers")),
        patch(MERGE, f"{DEPLOYMENTS}/d", {"metadata": {"finalizers": None}}, show="status"),
    ),
)
