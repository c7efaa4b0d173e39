"""Limits of requests and objects, and malformed requests."""

from typing import Any

from apisuite.case import APPLY, JSON_PATCH, MERGE, Case, case, delete, get, patch, post, put
from apisuite.cases.bodies import ACCOUNTS, CM, CRDS, PODS, SECRETS, cm

YAML = {"Content-Type": "application/yaml"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TOKEN = f"{ACCOUNTS}/default/token"
EVICTION = f"{PODS}/a/eviction"
DEEP = "[" * 10_001 + "]" * 10_001
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(7)
)
TEST = {"op": "test", "path": "/data/a", "value": "b"}
INTEGERS = {"type": "array", "items": {"type": "integer"}}


def ruled(rule: str, **properties: Any) -> dict[str, Any]:
    """A CRD with one rule of its spec."""
    rules = [{"rule": rule}]
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": rules}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.$u.example.com"},
        "spec": {
            "group": "$u.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }


def refused_rule(name: str, rule: str, **properties: Any) -> Case:
    path = f"{CRDS}?dryRun=All"
    only = ("status", "details.causes.0.message", "details.causes.0.field")
    return case(f"cost of {name}", post(path, ruled(rule, **properties), only=only[1:]))


CASES = [
    case("deep JSON", post(REVIEWS, '{"spec":{"x":' + DEEP + "}}")),
    case("deep array", post(REVIEWS, "[" * 20_000)),
    case("deep merge patch", post(CM, cm("a")), patch(MERGE, f"{CM}/a", '{"x":' + DEEP + "}")),
    case("deep JSON patch", post(CM, cm("a")), patch(JSON_PATCH, f"{CM}/a", DEEP)),
    case("aliases", post(REVIEWS, BOMB, headers=YAML)),
    case(
        "an alias", post(CM, "metadata: {name: aliased}\ndata: {a: &x '1', b: *x}\n", headers=YAML)
    ),
    case("a boolean as a name", post(CM, "metadata: {name: y}", headers=YAML)),
    case("apply of an array", patch(APPLY, f"{CM}/a?fieldManager=a", "- a")),
    case(
        "too many operations",
        post(CM, cm("a", {"a": "b"})),
        patch(JSON_PATCH, f"{CM}/a", [TEST] * 10_001),
        patch(JSON_PATCH, f"{CM}/a", [TEST] * 10_000, show="status"),
    ),
    case(
        "copies that double",
        post(CM, cm("a", {"a": "x" * 1000})),
        patch(
            JSON_PATCH,
            f"{CM}/a",
            [{"op": "copy", "from": "/data", "path": f"/data/x{n}"} for n in range(40)],
        ),
    ),
    case("large body", post(CM, cm("a", {"a": "x" * 3_200_000}))),
    case(
        "large object",
        post(
            "/apis/apps/v1/namespaces/$ns/controllerrevisions",
            {"metadata": {"name": "a"}, "revision": 1, "data": {"a": "x" * 2_000_000}},
        ),
    ),
    *(
        case(f"query {query[:40]}", get(f"{SECRETS}?{query}"))
        for query in (
            "limit=%C2%B2",
            "limit=99999999999999999999",
            "limit=-1",
            "limit=%2B1",
            "limit=1_0",
            "limit=",
            "watch=1&timeoutSeconds=%C2%B2",
            "resourceVersion=%C2%B2",
            "resourceVersion=-1",
            "resourceVersion=999999999999999999999999999999",
            "continue=e30",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
            "watch=0",
            "watch=FALSE",
        )
    ),
    case("a watch by any value", get(f"{SECRETS}?watch=no&timeoutSeconds=1")),
    case("control characters in the manager", post(f"{CM}?fieldManager=a%0ab", cm("a"))),
    case("surrogates", post(CM, '{"metadata":{"name":"s"},"data":{"a":"\\ud800"}}')),
    case("a surrogate in the name", post(CM, '{"metadata":{"name":"\\ud800"}}')),
    case("not a number", post(CM, '{"metadata":{"generation":NaN}}', show="status")),
    *(
        case(f"revision {text}", post(CM, cm("a")), put(f"{CM}/a", cm("a", resourceVersion=text)))
        for text in ("x", "-1", "99999999999999999999999")
    ),
    *(
        case(f"token {body[:60]}", post(TOKEN, body))
        for body in (
            "[]",
            '{"spec":[]}',
            '{"spec":{"expirationSeconds":"x"}}',
            '{"spec":{"audiences":"x"}}',
            '{"spec":{"audiences":[1]}}',
            '{"spec":{"boundObjectRef":"x"}}',
            '{"spec":{"boundObjectRef":{"kind":["Pod"]}}}',
            '{"metadata":5}',
            '{"kind":"Pod","apiVersion":"v1"}',
        )
    ),
    *(
        case(f"eviction {body[:60]}", post(EVICTION, body))
        for body in (
            "[]",
            "{}",
            '{"deleteOptions":[]}',
            '{"deleteOptions":{"dryRun":"x"}}',
            '{"deleteOptions":{"dryRun":[1]}}',
            '{"metadata":[]}',
            '{"metadata":{"name":5}}',
            '{"deleteOptions":{"gracePeriodSeconds":"x"}}',
            '{"kind":"Pod","apiVersion":"v1"}',
        )
    ),
    *(
        case(f"delete options {body[:60]}", post(CM, cm("a")), delete(f"{CM}/a", body))
        for body in (
            "[]",
            "5",
            '{"dryRun":"All"}',
            '{"dryRun":[1]}',
            '{"gracePeriodSeconds":"x"}',
            '{"preconditions":"x"}',
            '{"preconditions":{"uid":5}}',
            '{"propagationPolicy":["x"]}',
            '{"orphanDependents":"x"}',
            '{"kind":"Pod","apiVersion":"v1"}',
            '{"kind":["x"]}',
        )
    ),
    refused_rule("map", "self.a.map(x, x + 1).size() < 5", a=INTEGERS),
    refused_rule("filter", "self.a.filter(x, x > 1).size() < 5", a=INTEGERS),
    refused_rule("all", "self.a.all(x, self.a.all(y, x == y))", a={**INTEGERS, "maxItems": 2500}),
    refused_rule("split", "self.a.split('.').all(x, x.size() < 5)", a={"type": "string"}),
    refused_rule("contains", "self.a.contains(self.a)", a={"type": "string"}),
]
