"""Authentication and RBAC."""

from apisuite.case import ApiRequest, case, get, post, status_only
from apisuite.cases.bodies import ACCOUNTS, CM, PODS, RBAC, Body, cm

AUTHZ = "/apis/authorization.k8s.io/v1"
AUTHN = "/apis/authentication.k8s.io/v1"
SELF = f"{AUTHZ}/selfsubjectaccessreviews"
OTHERS = f"{AUTHZ}/subjectaccessreviews"


def review(kind: str, **spec: object) -> Body:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def may(verb: str, resource: str, **more: object) -> Body:
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "$ns", **more}}


def rule(*verbs: str, resources: tuple[str, ...] = ("configmaps",), **more: object) -> Body:
    return {"apiGroups": [""], "resources": list(resources), "verbs": list(verbs), **more}


def role(*rules: Body) -> tuple[ApiRequest, ...]:
    """A role for the case's service account ``bot``, and its token."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    here = f"{RBAC}/namespaces/$ns"
    return (
        post(
            ACCOUNTS,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}},
            show="status",
        ),
        post(
            f"{here}/roles",
            {**head, "kind": "Role", "metadata": {"name": "r"}, "rules": list(rules)},
            show="status",
        ),
        post(
            f"{here}/rolebindings",
            {
                **head,
                "kind": "RoleBinding",
                "metadata": {"name": "r"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "$ns"}],
            },
            show="status",
        ),
        post(
            f"{ACCOUNTS}/bot/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
            save={"token": "status.token"},
            show="status",
        ),
    )


READER = role(rule("get", "list", "watch"))
BOT = "system:serviceaccount:$ns:bot"
SETTLED = post(
    OTHERS,
    review("SubjectAccessReview", user=BOT, **may("get", "configmaps")),
    until=("status.allowed", True),
    only=("status.allowed",),
)

CASES = (
    case(
        "who am I",
        *READER,
        post(
            f"{AUTHN}/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            who="token",
            only=("kind", "status.userInfo.username", "status.userInfo.groups"),
        ),
    ),
    case("nobody may read", get(CM, who="nobody")),
    case(
        "nobody may see discovery",
        get("/apis", who="nobody", only=("kind", "reason", "message", "code")),
    ),
    case(
        "a wrong token",
        get("/api/v1/namespaces/$ns", save={"token": "metadata.uid"}, show="nothing"),
        get(CM, who="token"),
    ),
    case(
        "what is allowed is done",
        *READER,
        SETTLED,
        status_only(post(CM, cm("a"))),
        get(f"{CM}/a", who="token", only=("metadata.name",)),
    ),
    case(
        "what is not allowed is refused",
        *READER,
        SETTLED,
        post(CM, cm("a"), who="token"),
        get(PODS, who="token"),
        get("/api/v1/configmaps", who="token"),
        get("/api/v1/nodes/x", who="token"),
    ),
    case(
        "only the named object",
        *role(rule("get", resourceNames=["a"])),
        status_only(post(CM, cm("a"))),
        status_only(post(CM, cm("b"))),
        get(f"{CM}/a", who="token", until=("kind", "ConfigMap"), only=("metadata.name",)),
        get(f"{CM}/b", who="token"),
    ),
    case(
        "a subresource is a resource of its own",
        *role(rule("get", resources=("pods",))),
        get(f"{PODS}/p/status", who="token", only=("code", "message")),
    ),
    case(
        "any verb, any resource",
        *role({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        post(CM, cm("a"), who="token", until=("reason", "AlreadyExists"), show="status"),
        get(f"{CM}/a", who="token", only=("metadata.name",)),
    ),
    case(
        "may I: the admin may all",
        post(
            SELF,
            review("SelfSubjectAccessReview", **may("delete", "pods")),
            only=("kind", "spec", "status.allowed"),
        ),
    ),
    case(
        "may I: the reader",
        *READER,
        SETTLED,
        post(
            SELF,
            review("SelfSubjectAccessReview", **may("list", "configmaps")),
            who="token",
            only=("status.allowed",),
        ),
        post(
            SELF,
            review("SelfSubjectAccessReview", **may("delete", "configmaps")),
            who="token",
            only=("status.allowed",),
        ),
    ),
    case(
        "may they",
        *READER,
        SETTLED,
        post(
            OTHERS,
            review("SubjectAccessReview", user=BOT, **may("delete", "configmaps")),
            only=("status.allowed",),
        ),
    ),
    case(
        "may they, of a path",
        post(
            OTHERS,
            review(
                "SubjectAccessReview",
                user="x",
                nonResourceAttributes={"verb": "get", "path": "/metrics"},
            ),
            only=("status.allowed",),
        ),
    ),
    case(
        "may they, by group",
        post(
            OTHERS,
            review(
                "SubjectAccessReview", user="x", groups=["system:masters"], **may("delete", "nodes")
            ),
            only=("status.allowed",),
        ),
    ),
    case("may nobody", post(OTHERS, review("SubjectAccessReview", **may("get", "pods")))),
    case(
        "may they, locally",
        *READER,
        SETTLED,
        post(
            f"{AUTHZ}/namespaces/$ns/localsubjectaccessreviews",
            {
                **review("LocalSubjectAccessReview", user=BOT, **may("get", "configmaps")),
                "metadata": {"namespace": "$ns"},
            },
            only=("status.allowed",),
        ),
    ),
    case(
        "the reader may not review others",
        *READER,
        SETTLED,
        post(OTHERS, review("SubjectAccessReview", user="x", **may("get", "pods")), who="token"),
    ),
    case(
        "my rules",
        *READER,
        SETTLED,
        post(
            f"{AUTHZ}/selfsubjectrulesreviews",
            review("SelfSubjectRulesReview", namespace="$ns"),
            who="token",
            only=("kind", "status.incomplete"),
        ),
    ),
    case(
        "a token is reviewed",
        *READER,
        post(
            f"{AUTHN}/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "$token"},
            },
            only=("status.authenticated", "status.user.username", "status.user.groups"),
        ),
    ),
    case(
        "a token nobody gave is reviewed",
        post(
            f"{AUTHN}/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "x"},
            },
            only=("status.authenticated",),
        ),
    ),
    case(
        "a reader does not impersonate",
        *READER,
        SETTLED,
        get(
            CM, who="token", headers={"Impersonate-User": "admin"}, only=("code", "reason", "kind")
        ),
    ),
    case(
        "nobody grants more than they have",
        *role(
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["roles"],
                "verbs": ["create"],
            }
        ),
        post(
            f"{RBAC}/namespaces/$ns/roles",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "more"},
                "rules": [rule("delete")],
            },
            who="token",
            drop=("message", "details"),
        ),
    ),
    case("reviews are not kept", get(SELF, only=("code", "reason"))),
)
