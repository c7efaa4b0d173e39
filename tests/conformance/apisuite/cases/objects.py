"""Create, read, replace: one object at a time."""

from apisuite.case import case, delete, get, post, put, status_only
from apisuite.cases.bodies import ACCOUNTS, CM, LEASES, SECRETS, SERVICES, cm, lease, secret

_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "c-$u", "namespace": "$ns"},
    "value": 5,
}
CASES = (
    case("create a configmap", post(CM, cm("a", {"k": "v"}))),
    case(
        "read back what was created",
        status_only(post(CM, cm("a", {"k": "v"}, labels={"l": "1"}, annotations={"n": "2"}))),
        get(f"{CM}/a"),
    ),
    case("create without data", post(CM, cm("a")), get(f"{CM}/a")),
    case("create takes the namespace from the path", post(CM, cm("a", namespace="$ns"))),
    case("create with another namespace in the body", post(CM, cm("a", namespace="other"))),
    case(
        "create what has no namespace with a namespace in the body",
        post("/apis/scheduling.k8s.io/v1/priorityclasses", _CLASS),
        put("/apis/scheduling.k8s.io/v1/priorityclasses/c-$u", _CLASS),
        get("/apis/scheduling.k8s.io/v1/priorityclasses/c-$u"),
        delete("/apis/scheduling.k8s.io/v1/priorityclasses/c-$u"),
    ),
    case("create in a namespace that is not there", post(CM.replace("$ns", "nope-$u"), cm("a"))),
    case("create twice", status_only(post(CM, cm("a"))), post(CM, cm("a"))),
    case("create with a generated name", post(CM, cm(generateName="gen-"))),
    case("create without a name", post(CM, cm())),
    case("create with a bad name", post(CM, cm("Bad_Name"))),
    case("create with a resource version", post(CM, cm("a", resourceVersion="1"))),
    case(
        "create ignores what only the server sets",
        post(
            CM,
            cm(
                "a",
                uid="6a7dd4a5-0000-4000-8000-000000000000",
                creationTimestamp="2001-01-01T00:00:00Z",
                generation=7,
                deletionTimestamp="2001-01-01T00:00:00Z",
                selfLink="/x",
            ),
            drop=("metadata.managedFields",),
        ),
    ),
    case("create with another kind", post(CM, {**cm("a"), "kind": "Secret"})),
    case("create with another group version", post(CM, {**cm("a"), "apiVersion": "v2"})),
    case("create without kind and version", post(CM, {"metadata": {"name": "a"}})),
    case("create with a bad label", post(CM, cm("a", labels={"a b": "c d!"}))),
    case("create with a bad annotation key", post(CM, cm("a", annotations={"a b": "c"}))),
    case("create with a bad data key", post(CM, cm("a", {"a b": "c"}))),
    case("create with the wrong type for a field", post(CM, cm("a", {"k": 5}))),
    case("create with something that is not JSON", post(CM, "{nope")),
    case("create with an empty body", post(CM, "")),
    case("create with a list as body", post(CM, "[]")),
    case(
        "create from YAML",
        post(
            CM,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n",
            headers={"Content-Type": "application/yaml"},
        ),
    ),
    case(
        "create with a content type nobody reads",
        post(CM, "x", headers={"Content-Type": "text/plain"}),
    ),
    case("get what is not there", get(f"{CM}/none")),
    case("get in a namespace that is not there", get(CM.replace("$ns", "no-$u") + "/none")),
    case("get with an Accept nobody writes", get(f"{CM}/a", headers={"Accept": "text/csv"})),
    case(
        "replace",
        status_only(post(CM, cm("a", {"k": "v"}))),
        put(f"{CM}/a", cm("a", {"k": "w"})),
    ),
    case(
        "replace with the same writes nothing",
        post(CM, cm("a", {"k": "v"})),
        put(f"{CM}/a", cm("a", {"k": "v"})),
    ),
    case(
        "replace with a stale resource version",
        post(CM, cm("a", {"k": "1"}), save={"rv": "metadata.resourceVersion"}),
        status_only(put(f"{CM}/a", cm("a", {"k": "2"}))),
        put(f"{CM}/a", cm("a", {"k": "3"}, resourceVersion="$rv")),
    ),
    case(
        "replace with the right resource version",
        post(CM, cm("a", {"k": "1"}), save={"rv": "metadata.resourceVersion"}),
        put(f"{CM}/a", cm("a", {"k": "3"}, resourceVersion="$rv")),
    ),
    case(
        "replace with a resource version that is no number",
        status_only(post(CM, cm("a"))),
        put(f"{CM}/a", cm("a", {"k": "3"}, resourceVersion="x")),
    ),
    case(
        "replace with another uid",
        status_only(post(CM, cm("a"))),
        put(f"{CM}/a", cm("a", uid="6a7dd4a5-0000-4000-8000-000000000000")),
    ),
    case("replace what is not there", put(f"{CM}/none", cm("none"))),
    case("replace under another name", status_only(post(CM, cm("a"))), put(f"{CM}/a", cm("b"))),
    case("replace without a name", status_only(post(CM, cm("a"))), put(f"{CM}/a", cm())),
    case(
        "an immutable configmap stays as it is",
        status_only(post(CM, {**cm("a", {"k": "v"}), "immutable": True})),
        put(f"{CM}/a", {**cm("a", {"k": "w"}), "immutable": True}),
        put(f"{CM}/a", cm("a", {"k": "v"})),
    ),
    case("delete", status_only(post(CM, cm("a"))), delete(f"{CM}/a"), get(f"{CM}/a")),
    case("delete what is not there", delete(f"{CM}/none")),
    case(
        "a secret's string data becomes data",
        post(SECRETS, secret("s", stringData={"a": "b"})),
        get(f"{SECRETS}/s"),
    ),
    case("a secret has a type", post(SECRETS, secret("s", data={"a": "Yg=="}))),
    case("a secret's data must be base64", post(SECRETS, secret("s", data={"a": "!!"}))),
    case(
        "a TLS secret needs its keys",
        post(SECRETS, secret("s", type="kubernetes.io/tls", data={"tls.crt": "Yg=="})),
    ),
    case(
        "a secret's type is fixed",
        status_only(post(SECRETS, secret("s", type="Opaque"))),
        put(f"{SECRETS}/s", secret("s", type="other/type")),
    ),
    case(
        "a service account",
        post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}),
    ),
    case(
        "a lease keeps its microseconds",
        post(
            LEASES,
            lease(
                "l",
                holderIdentity="me",
                leaseDurationSeconds=15,
                acquireTime="2020-01-01T00:00:00.123456Z",
                renewTime="2020-01-01T00:00:01.000000Z",
            ),
        ),
        get(f"{LEASES}/l"),
    ),
    case("a lease's duration must be positive", post(LEASES, lease("l", leaseDurationSeconds=-1))),
    case(
        "a headless service gets its defaults",
        post(
            SERVICES,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s"},
                "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]},
            },
            drop=("metadata.managedFields",),
        ),
    ),
    case(
        "field manager comes from the user agent",
        post(CM, cm("a", {"k": "v"}), headers={"User-Agent": "tool/1.2 (linux)"}),
    ),
    case(
        "field manager comes from the query", post(f"{CM}?fieldManager=mine", cm("a", {"k": "v"}))
    ),
    case(
        "a field manager that is too long",
        post(f"{CM}?fieldManager={'m' * 129}", cm("a", {"k": "v"})),
    ),
    case(
        "pretty printing keeps the content",
        status_only(post(CM, cm("a", {"k": "v"}))),
        get(f"{CM}/a?pretty=true"),
    ),
)
