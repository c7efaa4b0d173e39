"""
Escalation: nobody grants, approves or impersonates more than they hold.

The author of each case is a user whom the admin impersonates, so that every name is free. Random
roles, bindings and subjects are reproducible by seed.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from apisuite.case import MERGE, ApiRequest, Case, Step, case, get, patch, post, put, settle
from apisuite.cases.access import OTHERS, review
from apisuite.cases.bodies import CM, RBAC, Body

GROUP = "rbac.authorization.k8s.io"
HEAD = {"apiVersion": f"{GROUP}/v1"}
HERE = f"{RBAC}/namespaces/$ns"
ROLES, BINDINGS = f"{HERE}/roles", f"{HERE}/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
AUTHOR = "author-$u"
WRITE_RBAC: Body = {
    "apiGroups": [GROUP],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "list", "create", "update", "patch", "delete"],
}


def rule(verbs: str, resources: str = "configmaps", group: str = "", **more: object) -> Body:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


def role(name: str, *rules: Body, cluster: bool = False, **more: object) -> Body:
    kind = "ClusterRole" if cluster else "Role"
    return {**HEAD, "kind": kind, "metadata": {"name": name}, "rules": list(rules), **more}


def subject(name: str, kind: str = "User") -> Body:
    return {"kind": kind, "apiGroup": GROUP, "name": name}


def binding(name: str, to: Body, *subjects: Body, cluster: bool = False) -> Body:
    kind = "ClusterRoleBinding" if cluster else "RoleBinding"
    meta = {"name": name}
    return {**HEAD, "kind": kind, "metadata": meta, "roleRef": to, "subjects": list(subjects)}


def ref(name: str, kind: str = "Role") -> Body:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def as_user(request: ApiRequest, name: str = AUTHOR, group: str = "") -> ApiRequest:
    """The same request, made by a user whom the admin impersonates."""
    who = {"Impersonate-User": name, **({"Impersonate-Group": group} if group else {})}
    return replace(request, headers={**request.headers, **who})


def quiet(request: ApiRequest) -> ApiRequest:
    return replace(request, show="status")


def _allowed(verb: str, namespace: str) -> Step:
    about = {"verb": verb, "resource": "marker", "namespace": namespace}
    body = review("SubjectAccessReview", user=AUTHOR, resourceAttributes=about)
    return settle(post(OTHERS, body), "status.allowed", True)


def author(here: Sequence[Body] = (), everywhere: Sequence[Body] = ()) -> tuple[Step, ...]:
    """Give the author rules in the namespace and cluster-wide, and wait until they hold."""
    local, cluster = f"author-{AUTHOR}", "author-all-$u"
    return (
        quiet(post(ROLES, role(local, rule("local", "marker"), *here))),
        quiet(post(BINDINGS, binding(local, ref(local), subject(AUTHOR)))),
        quiet(post(CLUSTER_ROLES, role(cluster, rule("all", "marker"), *everywhere, cluster=True))),
        quiet(
            post(
                CLUSTER_BINDINGS,
                binding(cluster, ref(cluster, "ClusterRole"), subject(AUTHOR), cluster=True),
            )
        ),
        _allowed("local", "$ns"),
        _allowed("all", ""),
    )


def compared(request: ApiRequest) -> ApiRequest:
    """Compare an error in full, and an object by its kind."""
    return replace(request, only=("kind", "code", "reason", "message", "details"))


def attempt(request: ApiRequest) -> ApiRequest:
    return compared(as_user(request))


AGGREGATE = {"clusterRoleSelectors": [{"matchLabels": {"x-$u": "true"}}]}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
EVERY_PATH = {"nonResourceURLs": ["*"], "verbs": ["*"]}

ROLE_CASES = (
    case(
        "a role needs its rules",
        *author(here=[rule("get list"), WRITE_RBAC]),
        attempt(post(ROLES, role("same", rule("get")))),
        attempt(post(ROLES, role("more", rule("get delete")))),
        attempt(post(ROLES, role("other", rule("get", "secrets pods")))),
        attempt(post(ROLES, role("named", rule("get", resourceNames=["a"])))),
        attempt(post(ROLES, role("none"))),
    ),
    case(
        "a rule of names does not cover a rule without",
        *author(here=[rule("get update", resourceNames=["a", "b"]), WRITE_RBAC]),
        attempt(post(ROLES, role("one", rule("get", resourceNames=["a"])))),
        attempt(post(ROLES, role("all", rule("get")))),
        attempt(post(ROLES, role("other", rule("get update", resourceNames=["a", "c"])))),
    ),
    case(
        "subresources and wildcards",
        *author(here=[rule("get", "*/status pods/log"), rule("*", "events"), WRITE_RBAC]),
        attempt(post(ROLES, role("status", rule("get", "pods/status nodes/status")))),
        attempt(post(ROLES, role("any", rule("get", "*")))),
        attempt(post(ROLES, role("anysub", rule("get", "*/log")))),
        attempt(post(ROLES, role("verbs", rule("watch patch *", "events")))),
        attempt(post(ROLES, role("pods", rule("get", "pods")))),
    ),
    case(
        "escalate allows every rule",
        *author(here=[rule("escalate", "roles", GROUP), WRITE_RBAC]),
        attempt(post(ROLES, role("all", EVERYTHING))),
        attempt(post(CLUSTER_ROLES, role("all-$u", EVERYTHING, cluster=True))),
    ),
    case(
        "escalate of one name does not create",
        *author(here=[rule("escalate", "roles", GROUP, resourceNames=["mine"]), WRITE_RBAC]),
        attempt(post(ROLES, role("mine", rule("delete")))),
        quiet(post(ROLES, role("mine"))),
        attempt(patch(MERGE, f"{ROLES}/mine", {"rules": [rule("delete")]})),
    ),
    case(
        "an update needs the rules of the role",
        *author(here=[WRITE_RBAC]),
        quiet(post(ROLES, role("theirs", rule("delete")))),
        attempt(patch(MERGE, f"{ROLES}/theirs", {"metadata": {"labels": {"a": "b"}}})),
        attempt(patch(MERGE, f"{ROLES}/theirs", {"metadata": {"finalizers": ["a/b"]}})),
        attempt(patch(MERGE, f"{ROLES}/theirs", {"rules": []})),
    ),
    case(
        "an aggregation rule needs full authority",
        *author(everywhere=[WRITE_RBAC, rule("get")]),
        attempt(post(CLUSTER_ROLES, role("a-$u", cluster=True, aggregationRule=AGGREGATE))),
        attempt(post(CLUSTER_ROLES, role("b-$u", cluster=True, aggregationRule={}))),
        quiet(post(CLUSTER_ROLES, role("c-$u", cluster=True, aggregationRule=AGGREGATE))),
        quiet(post(CLUSTER_ROLES, role("d-$u", cluster=True))),
        attempt(patch(MERGE, f"{CLUSTER_ROLES}/c-$u", {"metadata": {"labels": {"a": "b"}}})),
        attempt(patch(MERGE, f"{CLUSTER_ROLES}/c-$u", {"aggregationRule": None})),
        attempt(patch(MERGE, f"{CLUSTER_ROLES}/d-$u", {"aggregationRule": AGGREGATE})),
    ),
    case(
        "full authority aggregates",
        *author(everywhere=[EVERYTHING, EVERY_PATH]),
        attempt(post(CLUSTER_ROLES, role("a-$u", cluster=True, aggregationRule=AGGREGATE))),
    ),
    case(
        "all resources without all paths do not aggregate",
        *author(everywhere=[rule("*", "*", "*")]),
        attempt(
            post(
                CLUSTER_ROLES,
                role("a-$u", cluster=True, aggregationRule=AGGREGATE),
            )
        ),
    ),
    case(
        "paths",
        *author(everywhere=[WRITE_RBAC, {"nonResourceURLs": ["/logs/*"], "verbs": ["get"]}]),
        attempt(
            post(
                CLUSTER_ROLES,
                role("a-$u", {"nonResourceURLs": ["/logs/a"], "verbs": ["get"]}, cluster=True),
            )
        ),
        attempt(
            post(
                CLUSTER_ROLES,
                role("b-$u", {"nonResourceURLs": ["/logs"], "verbs": ["get"]}, cluster=True),
            )
        ),
        attempt(
            post(
                CLUSTER_ROLES,
                role("c-$u", {"nonResourceURLs": ["*"], "verbs": ["get", "post"]}, cluster=True),
            )
        ),
    ),
)

BINDING_CASES = (
    case(
        "a binding needs the rules of the role",
        quiet(post(ROLES, role("reads", rule("get")))),
        quiet(post(ROLES, role("deletes", rule("delete")))),
        *author(here=[rule("get"), WRITE_RBAC]),
        attempt(post(BINDINGS, binding("a", ref("reads"), subject("x")))),
        attempt(post(BINDINGS, binding("b", ref("deletes"), subject("x")))),
        attempt(post(BINDINGS, binding("c", ref("cluster-admin", "ClusterRole"), subject("x")))),
    ),
    case(
        "a binding to a role that does not exist",
        *author(here=[WRITE_RBAC], everywhere=[WRITE_RBAC]),
        attempt(post(BINDINGS, binding("a", ref("none"), subject(AUTHOR)))),
        attempt(post(BINDINGS, binding("b", ref("none-$u", "ClusterRole"), subject(AUTHOR)))),
        attempt(
            post(
                CLUSTER_BINDINGS,
                binding("c-$u", ref("none-$u", "ClusterRole"), subject(AUTHOR), cluster=True),
            )
        ),
    ),
    case(
        "bind allows the named role only",
        quiet(post(ROLES, role("deletes", rule("delete")))),
        *author(here=[rule("bind", "roles", GROUP, resourceNames=["deletes", "none"]), WRITE_RBAC]),
        attempt(post(BINDINGS, binding("a", ref("deletes"), subject("x")))),
        attempt(post(BINDINGS, binding("b", ref("none"), subject("x")))),
        attempt(post(BINDINGS, binding("c", ref("cluster-admin", "ClusterRole"), subject("x")))),
        attempt(post(BINDINGS, binding("d", ref("other"), subject("x")))),
    ),
    case(
        "the role of a binding does not change",
        quiet(post(ROLES, role("reads", rule("get")))),
        quiet(post(ROLES, role("lists", rule("get")))),
        *author(here=[rule("get"), WRITE_RBAC]),
        attempt(post(BINDINGS, binding("a", ref("reads"), subject("x")))),
        attempt(put(f"{BINDINGS}/a", binding("a", ref("lists"), subject("x")))),
        attempt(put(f"{BINDINGS}/a", binding("a", ref("reads"), subject("y")))),
    ),
    case(
        "a binding of others is not extended",
        quiet(post(ROLES, role("deletes", rule("delete")))),
        *author(here=[WRITE_RBAC]),
        quiet(post(BINDINGS, binding("a", ref("deletes"), subject("x")))),
        attempt(patch(MERGE, f"{BINDINGS}/a", {"subjects": [subject(AUTHOR)]})),
        attempt(patch(MERGE, f"{BINDINGS}/a", {"metadata": {"finalizers": ["a/b"]}})),
    ),
    case(
        "a binding of a wrong kind",
        *author(here=[WRITE_RBAC], everywhere=[WRITE_RBAC]),
        attempt(
            post(CLUSTER_BINDINGS, binding("a-$u", ref("r"), subject("x"), cluster=True)),
        ),
    ),
    case(
        "a missing role is named in the refusal",
        quiet(post(BINDINGS, binding("lost", ref("lost"), subject(AUTHOR)))),
        *author(here=[WRITE_RBAC]),
        attempt(get("/api/v1/namespaces/$ns/secrets")),
        attempt(post(ROLES, role("more", rule("delete")))),
    ),
)

OTHER_CASES = (
    case(
        "impersonation",
        compared(as_user(get(CM), "someone-$u")),
        compared(as_user(get(CM), "someone-$u", "system:masters")),
        compared(as_user(get("/api/v1/nodes"), "system:serviceaccount:$ns:default")),
        replace(compared(get(CM)), headers={"Impersonate-Group": "some"}, only=("code", "reason")),
    ),
    case(
        "a token of another account",
        *author(here=[rule("get create", "serviceaccounts")]),
        attempt(
            post(
                "/api/v1/namespaces/$ns/serviceaccounts/default/token",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
            )
        ),
    ),
)

# Random roles and bindings

_GROUPS = ("", "apps", "*")
_RESOURCES = ("configmaps", "secrets", "pods", "pods/log", "*/log", "deployments", "*")
_VERBS = ("get", "list", "watch", "create", "delete", "*")
_NAMES = ((), (), ("a",), ("a", "b"))
_SUBJECTS = (subject("x"), subject(AUTHOR), subject("system:masters", "Group"))


def _random_rule(dice: random.Random) -> Body:
    names = dice.choice(_NAMES)
    made: Body = {
        "apiGroups": dice.sample(_GROUPS, dice.randint(1, 2)),
        "resources": dice.sample(_RESOURCES, dice.randint(1, 2)),
        "verbs": dice.sample(_VERBS, dice.randint(1, 3)),
    }
    return {**made, "resourceNames": list(names)} if names else made


def _rules(dice: random.Random, most: int) -> list[Body]:
    return [_random_rule(dice) for _ in range(dice.randint(1, most))]


def _random_attempt(dice: random.Random, number: int) -> ApiRequest:
    name, cluster = f"t{number}", dice.random() < 0.4
    if dice.random() < 0.6:
        rules = _rules(dice, 2)
        if cluster:
            return post(CLUSTER_ROLES, role(f"{name}-$u", *rules, cluster=True))
        return post(ROLES, role(name, *rules))
    target = dice.choice((ref("target-$u", "ClusterRole"), ref("view", "ClusterRole"), ref("none")))
    if cluster and target["kind"] == "ClusterRole":
        made = binding(f"{name}-$u", target, dice.choice(_SUBJECTS), cluster=True)
        return post(CLUSTER_BINDINGS, made)
    return post(BINDINGS, binding(name, target, dice.choice(_SUBJECTS)))


def _random_case(seed: int) -> Case:
    dice = random.Random(seed)
    held, extra = _rules(dice, 3), [_random_rule(dice)] if dice.random() < 0.5 else []
    verbs = dice.sample(("escalate", "bind"), dice.choice((0, 0, 0, 1)))
    special = [rule(verb, "roles clusterroles", GROUP) for verb in verbs]
    return case(
        f"random roles, seed {seed}",
        quiet(post(CLUSTER_ROLES, role("target-$u", *_rules(dice, 2), cluster=True))),
        *author(here=[*held, *special, WRITE_RBAC], everywhere=[*extra, WRITE_RBAC]),
        *(attempt(_random_attempt(dice, n)) for n in range(8)),
    )


CASES = (*ROLE_CASES, *BINDING_CASES, *OTHER_CASES, *(_random_case(seed) for seed in range(12)))
