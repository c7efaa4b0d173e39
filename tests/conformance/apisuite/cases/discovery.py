"""Discovery, OpenAPI, health and unknown paths."""

from apisuite.case import MERGE, case, delete, get, patch, post, put
from apisuite.cases.bodies import CM, cm

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def rows(*names: str) -> tuple[str, ...]:
    return tuple(f"resources[name={n}]" for n in names)


CASES = (
    case("the core's versions", get("/api", drop=("serverAddressByClientCIDRs",))),
    case(
        "core resources",
        get(
            "/api/v1",
            only=(
                "kind",
                "groupVersion",
                *rows(
                    "configmaps",
                    "secrets",
                    "namespaces",
                    "namespaces/status",
                    "namespaces/finalize",
                    "nodes",
                    "nodes/status",
                    "events",
                    "serviceaccounts",
                    "serviceaccounts/token",
                ),
            ),
        ),
    ),
    case(
        "core resources of pods and volumes",
        get(
            "/api/v1",
            only=rows(
                "pods",
                "pods/status",
                "pods/binding",
                "pods/eviction",
                "services",
                "services/status",
                "persistentvolumes",
                "persistentvolumes/status",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
            ),
        ),
    ),
    case(
        "apps",
        get(
            "/apis/apps/v1",
            only=rows(
                "deployments",
                "deployments/scale",
                "deployments/status",
                "daemonsets",
                "statefulsets",
                "statefulsets/scale",
                "replicasets",
            ),
        ),
    ),
    case(
        "leases",
        get("/apis/coordination.k8s.io/v1", only=("kind", "groupVersion", *rows("leases"))),
    ),
    case(
        "storage",
        get(
            "/apis/storage.k8s.io/v1",
            only=rows(
                "storageclasses",
                "volumeattachments",
                "volumeattachments/status",
                "csinodes",
                "csidrivers",
                "csistoragecapacities",
            ),
        ),
    ),
    case(
        "access control",
        get(
            "/apis/rbac.authorization.k8s.io/v1",
            only=rows("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
        ),
    ),
    case("reviews", get("/apis/authorization.k8s.io/v1")),
    case(
        "authentication",
        get("/apis/authentication.k8s.io/v1", only=rows("tokenreviews", "selfsubjectreviews")),
    ),
    case(
        "policy",
        get("/apis/policy/v1", only=rows("poddisruptionbudgets", "poddisruptionbudgets/status")),
    ),
    case("priorities", get("/apis/scheduling.k8s.io/v1", only=rows("priorityclasses"))),
    case(
        "definitions",
        get(
            "/apis/apiextensions.k8s.io/v1",
            only=(
                "kind",
                "groupVersion",
                *rows("customresourcedefinitions", "customresourcedefinitions/status"),
            ),
        ),
    ),
    case("events", get("/apis/events.k8s.io/v1", only=rows("events"))),
    case("endpoint slices", get("/apis/discovery.k8s.io/v1", only=rows("endpointslices"))),
    case("a group", get("/apis/apps")),
    case(
        "the list of groups names ours",
        get(
            "/apis",
            only=(
                "kind",
                "apiVersion",
                "groups[name=apps]",
                "groups[name=coordination.k8s.io]",
                "groups[name=apiextensions.k8s.io]",
            ),
        ),
    ),
    case("a group nobody knows", get("/apis/nope.example.com")),
    case("a version nobody knows", get("/apis/apps/v9")),
    case("a resource nobody knows", get("/apis/apps/v1/namespaces/$ns/nopes")),
    case("a path nobody knows", get("/nope")),
    case("a path below an object", get(f"{CM}/a/b/c")),
    case(
        "aggregated discovery of the core",
        get(
            "/api",
            headers={"Accept": AGGREGATED},
            only=(
                "kind",
                "apiVersion",
                "items[0].versions[0].version",
                "items[0].versions[0].resources[resource=configmaps]",
                "items[0].versions[0].resources[resource=namespaces]",
            ),
        ),
    ),
    case(
        "aggregated discovery of groups",
        get("/apis", headers={"Accept": AGGREGATED}, only=("kind", "apiVersion", "items[0].kind")),
    ),
    case("the version", get("/version", only=("major", "compiler"))),
    case("health", get("/healthz"), get("/livez"), get("/readyz"), get("/readyz/ping")),
    case("health for nobody in particular", get("/healthz", who="nobody")),
    case("the index of OpenAPI", get("/openapi/v3", only=("paths.apis/apps/v1.nothing",))),
    case(
        "OpenAPI knows what it describes",
        get(
            "/openapi/v3/api/v1",
            only=(
                "openapi",
                "components.schemas.io\\.k8s\\.api\\.core\\.v1\\.ConfigMap.x-kubernetes-group-version-kind",
            ),
        ),
    ),
    case(
        "OpenAPI of how to patch a configmap",
        get(
            "/openapi/v3/api/v1",
            only=(
                "paths./api/v1/namespaces/{namespace}/configmaps/{name}.patch.x-kubernetes-group-version-kind",
                "paths./api/v1/namespaces/{namespace}/configmaps/{name}.patch.x-kubernetes-action",
            ),
        ),
    ),
    case("a method nobody allows on a collection", put(CM, cm("a"))),
    case("a patch of a collection", patch(MERGE, CM, {})),
    case("a post to an object", post(f"{CM}/a", cm("a"))),
    case("a delete of discovery", delete("/apis/apps/v1")),
    case("a cluster-scoped kind below a namespace", get("/api/v1/namespaces/$ns/nodes")),
    case("a namespaced kind without its namespace", post("/api/v1/configmaps", cm("a"))),
)
