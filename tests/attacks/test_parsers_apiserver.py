"""
Bodies and query parameters that broke the embedded API server, and a fuzz of every endpoint.

Whatever arrives is answered with a Status within the limits; nothing raises and nothing recurses.
"""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.requests import Request
from moxwell.embedded.apiserver import limits, request_body
from moxwell.embedded.apiserver.builtin.kinds import KINDS, BuiltinKind
from moxwell.embedded.apiserver.builtin.model import BuiltinTypeData
from moxwell.embedded.apiserver.protobuf import MAGIC, ProtobufDecoder
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.status_errors import StatusError
from moxwell.testing.loop import LoopClock, run_virtual
from support.fuzzed_objects import ObjectFuzzer

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/default/token"
EVICTION = "/api/v1/namespaces/default/pods/a/eviction"
Answer = tuple[int, str]


def play(*requests: Request) -> list[Answer]:
    """Send requests to a new server with the ConfigMap ``a``; returns statuses and messages."""

    async def main() -> list[Answer]:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            body = json.dumps({"metadata": {"name": "a"}, "data": {"a": "b"}}).encode()
            await server.handle(make("POST", MAPS, body))
            return [await answer(server, request) for request in requests]

    found: list[Answer] = run_virtual(main())
    return found


async def answer(server: EmbeddedApiServer, request: Request) -> Answer:
    response = await server.handle(request)
    if response.chunks is not None:
        close = getattr(response.chunks, "aclose", None)
        if close is not None:
            await close()
        return response.status, ""
    try:
        return response.status, json.loads(response.body).get("message", "")
    except ValueError:
        return response.status, response.body.decode()


def make(method: str, path: str, body: bytes = b"", kind: str = JSON, **query: str) -> Request:
    headers = {"content-type": kind, "user-agent": "attack/1"}
    return Request(method=method, path=path, query=tuple(query.items()), headers=headers, body=body)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(7)
)
DEEP: list[tuple[str, Request, int, str]] = [
    ("sequences of sequences", make("POST", REVIEWS, b"- " * 100_000, YAML), 400, "max depth"),
    ("flow sequences", make("POST", REVIEWS, b"[" * 20_000, YAML), 400, "max depth"),
    ("complex keys", make("POST", REVIEWS, b"? " * 20_000, YAML), 400, "max depth"),
    ("aliases of aliases", make("POST", REVIEWS, BOMB, YAML), 400, "excessive aliasing"),
    (
        "aliases of a long text",
        make("POST", MAPS, b'a: &x "' + b"y" * 99_999 + b'"\nb: [' + b"*x," * 99 + b"]", YAML),
        413,
        "limit is 3145728",
    ),
    ("brackets", make("POST", REVIEWS, b"[" * 20_000), 400, "exceeded max depth"),
    ("arrays", make("POST", REVIEWS, b'{"a":' + nested(20_000) + b"}"), 400, "exceeded max depth"),
    ("objects", make("POST", REVIEWS, b'{"a":' * 20_000), 400, "exceeded max depth"),
    ("merge patch", make("PATCH", MAPS + "/a", nested(20_000), MERGE), 400, "exceeded max depth"),
    ("JSON patch", make("PATCH", MAPS + "/a", nested(20_000), JSON_PATCH), 400, "max depth"),
    ("strategic", make("PATCH", MAPS + "/a", nested(20_000), STRATEGIC), 400, "max depth"),
    (
        "apply",
        make("PATCH", MAPS + "/a", b"- " * 20_000, APPLY, fieldManager="a"),
        400,
        "max depth",
    ),
    ("delete options", make("DELETE", MAPS + "/a", nested(20_000)), 400, "exceeded max depth"),
    ("values", make("POST", REVIEWS, b"[" + b"1," * 1_000_000 + b"1]"), 413, "limit of values"),
    ("size", make("POST", REVIEWS, b" " * (limits.MAX_BODY + 1)), 413, "limit is 3145728"),
    (
        "long paths",
        make("POST", MAPS, b'{"' + b"k" * 1_500_000 + b'":[' + b"[]," * 9_000 + b"1]}"),
        413,
        "field paths",
    ),
]


@pytest.mark.parametrize(("request_", "status", "message"), [row[1:] for row in DEEP])
def test_deep_and_large_bodies_are_refused_before_they_are_parsed(
    request_: Request, status: int, message: str
) -> None:
    [(code, text)] = play(request_)
    assert (code, message in text) == (status, True), text[:300]


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_a_body_at_the_depth_limit_passes_through_every_write(
    opening: bytes, closing: bytes
) -> None:
    """All functions that recurse over objects have room for the greatest depth."""
    below = limits.MAX_DEPTH - 2
    deep = opening * below + b"1" + closing * below
    head = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"'
    body = head + b'},"spec":{"x":' + deep + b"}}"
    other = body.replace(b"1", b"2").replace(b"v2", b"v1")
    patch = b'[{"op":"add","path":"/spec/y","value":1}]'
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found = play(
        make("POST", crds, json.dumps(CRD).encode()),
        make("POST", widgets, body),
        make("PATCH", widgets + "/a", other, MERGE),
        make("PATCH", widgets + "/a", body, APPLY, fieldManager="x", force="true"),
        make("PATCH", widgets + "/a", other, APPLY, fieldManager="y", force="true"),
        make("PATCH", widgets + "/a", patch, JSON_PATCH),
        make("GET", widgets + "/a"),
        make("DELETE", widgets + "/a"),
    )
    assert [code for code, _ in found] == [201, 201, 200, 200, 200, 200, 200, 200], found


def test_a_json_patch_cannot_nest_deeper_than_a_body() -> None:
    value = {"a": json.loads(nested(100))}
    first = [{"op": "add", "path": "/metadata/x", "value": value}]
    second = [{"op": "add", "path": "/metadata/x" + "/a" + "/0" * 60, "value": value}]
    body = json.dumps([*first, *second]).encode()
    [(code, text)] = play(make("PATCH", MAPS + "/a", body, JSON_PATCH))
    assert (code, "exceeded max depth" in text) == (400, True)


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        (make("GET", MAPS, limit="²"), 400, 'strconv.ParseInt: parsing "²": invalid syntax'),
        (make("GET", MAPS, limit="9" * 5000), 400, "value out of range"),
        (make("GET", MAPS, watch="1", timeoutSeconds="²"), 400, "invalid syntax"),
        (make("GET", MAPS, resourceVersion="²"), 400, "strconv.ParseUint"),
        (make("GET", MAPS, resourceVersion="9" * 30), 400, "value out of range"),
        (Request(method="GET", path=MAPS, query=(("continue", "\udcff"),)), 400, "continue token"),
        (make("GET", MAPS + "/\udcff\ud800"), 404, "not found"),
        (make("POST", "/api/v1/namespaces/\udcff/configmaps", b"{}"), 404, "not found"),
        (make("POST", MAPS, b"{}", fieldManager="a\nb"), 422, "invalid character U+000A"),
        (make("DELETE", MAPS + "/a", gracePeriodSeconds="²"), 400, "strconv.ParseInt"),
        (make("POST", MAPS, b'{"metadata":{"name":"\\ud800"}}'), 422, "a lowercase RFC 1123"),
        (make("POST", MAPS, b'{"metadata":{"generation":' + b"9" * 5000 + b"}}"), 400, "number"),
        (make("POST", MAPS, b'{"metadata":{"generation":NaN}}'), 400, "invalid character 'N'"),
        (make("PUT", MAPS + "/a", b'{"metadata":{"name":"a","resourceVersion":"x"}}'), 500, "Uint"),
        (make("POST", TOKEN, b'{"spec":{"expirationSeconds":"x"}}'), 400, "of type int64"),
        (make("POST", TOKEN, b'{"spec":{"expirationSeconds":99999999999}}'), 422, "2^32"),
        (make("POST", TOKEN, b'{"spec":{"audiences":"x"}}'), 400, "of type []string"),
        (make("POST", TOKEN, b'{"spec":{"boundObjectRef":"x"}}'), 400, "v1.BoundObjectReference"),
        (make("POST", TOKEN, b'{"spec":{"boundObjectRef":{"kind":"Pod"}}}'), 404, "not found"),
        (make("POST", TOKEN, b'{"metadata":5}'), 400, "of type v1.ObjectMeta"),
        (make("POST", TOKEN, b"[]"), 400, "must be of type TokenRequest"),
        (make("POST", EVICTION, b'{"deleteOptions":[]}'), 400, "of type v1.DeleteOptions"),
        (make("POST", EVICTION, b'{"metadata":{"name":5}}'), 400, "of type string"),
        (make("POST", EVICTION, b'{"deleteOptions":{"dryRun":"x"}}'), 400, "of type []string"),
        (make("POST", EVICTION, b"{}"), 400, "name in URL does not match"),
        (make("DELETE", MAPS + "/a", b'{"dryRun":"All"}'), 400, "DeleteOptions.dryRun of type"),
        (make("DELETE", MAPS + "/a", b'{"preconditions":5}'), 400, "of type v1.Preconditions"),
        (make("DELETE", MAPS + "/a", b'{"kind":["x"]}'), 400, ".kind of type string"),
        (
            make("PATCH", MAPS + "/a", b'[{"op":"add","path":"/data/\xc2\xb2"}]', JSON_PATCH),
            422,
            "",
        ),
    ],
)
def test_malformed_requests_get_the_answer_of_kube_apiserver(
    request_: Request, status: int, message: str
) -> None:
    """The statuses and messages were compared with kube-apiserver 1.36.3."""
    [(code, text)] = play(request_)
    assert (code, message in text) == (status, True), text[:300]


def test_invalid_unicode_is_replaced_as_in_go() -> None:
    """Lone surrogates and invalid UTF-8 become U+FFFD; surrogate pairs stay."""
    body = b'{"metadata":{"name":"u"},"data":{"a":"\\ud800\xff\\ud83d\\ude00\\\\ud800"}}'
    assert json.loads(json.dumps(request_body.decode_json(body)))["data"]["a"] == "��😀\\ud800"
    assert play(make("POST", MAPS, body))[0][0] == 201


# properties


_PROTOBUF = ProtobufDecoder(BuiltinTypeData())
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None))
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
_YAML_PARTS = st.sampled_from(
    [
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a ",
        "!!int ",
        "!!binary ",
        "<<: ",
        "~",
        "1_0",
        "0x",
        "1:2",
        ".inf",
        "\n",
        "  ",
        '"',
        "'",
        "#",
        "%",
        "---\n",
        "...",
        "a",
        "²",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    body=st.one_of(
        st.binary(max_size=200),
        _VALUES.map(lambda value: json.dumps(value).encode()),
        st.lists(_YAML_PARTS, max_size=30).map(lambda parts: "".join(parts).encode()),
        st.binary(max_size=60).map(lambda raw: MAGIC + b"\x0a\x0e\x0a\x02v1\x12\x08DaemonSe" + raw),
    ),
    kind=st.sampled_from([JSON, YAML, PROTOBUF, APPLY, "", "text/plain"]),
)
def test_any_body_decodes_to_an_object_or_a_status(body: bytes, kind: str) -> None:
    for decode in (
        lambda: request_body.decode_body(body, kind, _PROTOBUF.decode, []),
        lambda: request_body.decode_patch(body),
        lambda: request_body.decode_apply(body),
    ):
        try:
            found = decode()
        except StatusError as error:
            found = error.status()
        assert found.get("code", 200) < 500 if isinstance(found, dict) else True
        json.dumps(found, allow_nan=False).encode()


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=120), row=st.sampled_from(KINDS))
def test_any_protobuf_message_decodes_to_an_object_or_a_status(
    raw: bytes, row: BuiltinKind
) -> None:
    version = (f"{row.group}/{row.version}" if row.group else row.version).encode()
    meta = b"\x0a" + _sized(version) + b"\x12" + _sized(row.kind.encode())
    body = MAGIC + b"\x0a" + _sized(meta) + b"\x12" + _sized(raw)
    try:
        found = _PROTOBUF.decode(body)
    except StatusError as error:
        found = error.status()
    assert found["kind"] in (row.kind, "Status")
    json.dumps(found, allow_nan=False).encode()


def _sized(data: bytes) -> bytes:
    assert len(data) < 128 * 128
    size = len(data)
    head = bytes([size]) if size < 128 else bytes([size % 128 + 128, size // 128])
    return head + data


# every endpoint


QUERY = [
    "limit",
    "watch",
    "timeoutSeconds",
    "resourceVersion",
    "resourceVersionMatch",
    "continue",
    "labelSelector",
    "fieldSelector",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "propagationPolicy",
    "orphanDependents",
    "pretty",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "includeObject",
]
VALUES = [
    *(["All", "Strict", "a", "1", "0", "true", "metadata.name=a", "!a", "a=b,c", "²"]),
    "9" * 20,
    "a in (b",
]
SUBRESOURCES = ["scale", "eviction", "token", "binding", "finalize", "status", "approval", "log"]
SUBRESOURCE_TYPES = (
    "k8s.io/api/policy/v1.Eviction",
    "k8s.io/api/autoscaling/v1.Scale",
    "k8s.io/api/authentication/v1.TokenRequest",
    "k8s.io/api/core/v1.Binding",
    "k8s.io/apimachinery/pkg/apis/meta/v1.DeleteOptions",
)
WIDGETS = BuiltinKind(group="example.com", version="v1", kind="Widget", plural="widgets", go="")
CRD = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "a": {"type": "array", "items": {"type": "string"}},
                                },
                                "x-kubernetes-validations": [
                                    {"rule": "!has(self.a) || self.a.all(x, x.size() < 100)"}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}
# kube-apiserver answers these mistakes of a client with 500 as well
KNOWN_500 = (
    "map: ",
    "failed to create typed patch object",
    "strconv.Parse",
    "resourceVersion should not be set",
    "resourceVersion: Invalid value",
    "target.name: Required value",
)


class EndpointFuzzer:
    """Random requests to random endpoints."""

    def __init__(self, server: EmbeddedApiServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._objects = ObjectFuzzer(server.core.tables.types.table, self._random)

    def request(self) -> Request:
        pick = self._random.choice
        row = WIDGETS if self._random.random() < 0.15 else pick(KINDS)
        method, tail, kind, body = pick(self._forms())(row)
        query = [(n, pick((*VALUES, self._objects.text()))) for n in QUERY if self._chance(0.04)]
        if kind == APPLY and self._chance(0.9):
            query.append(("fieldManager", "m"))
        accept = pick(["*/*", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"])
        headers = {"content-type": kind, "user-agent": self._objects.text(), "accept": accept}
        return Request(
            method=method,
            path=_path(row) + tail,
            query=tuple(query),
            headers=headers,
            body=json.dumps(body).encode(),
        )

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _forms(self) -> list[Callable[[BuiltinKind], tuple[str, str, str, Any]]]:
        pick = self._random.choice
        return [
            lambda row: ("POST", "", JSON, self._object(row)),
            lambda row: ("POST", "", JSON, self._object(row)),
            lambda row: ("PUT", "/a", JSON, self._object(row)),
            lambda row: ("PATCH", "/a", pick([MERGE, STRATEGIC, APPLY]), self._object(row)),
            lambda row: ("PATCH", "/a/status", pick([MERGE, STRATEGIC, APPLY]), self._object(row)),
            lambda row: ("PATCH", "/a", JSON_PATCH, self._operations()),
            lambda row: (
                pick(["POST", "PUT", "PATCH", "GET", "DELETE"]),
                f"/a/{pick(SUBRESOURCES)}",
                pick([JSON, MERGE, APPLY, JSON_PATCH]),
                self._objects.struct(pick(SUBRESOURCE_TYPES)),
            ),
            lambda row: (
                "DELETE",
                pick(["/a", "/b", ""]),
                JSON,
                self._objects.struct(SUBRESOURCE_TYPES[-1]),
            ),
            lambda row: ("GET", pick(["/a", ""]), JSON, None),
        ]

    def _object(self, row: BuiltinKind) -> Any:
        made = self._objects.struct(row.go) if row.go else {"spec": self._objects.any()}
        version = f"{row.group}/{row.version}" if row.group else row.version
        if self._chance(0.97):
            made |= {"apiVersion": version, "kind": row.kind}
        meta = made.get("metadata")
        if self._chance(0.95):
            kept = meta if isinstance(meta, dict) and self._chance(0.5) else {}
            made["metadata"] = {**kept, "name": self._random.choice(["a", "b", "default"])}
        return made

    def _operations(self) -> list[Any]:
        pick = self._random.choice
        words = ["metadata", "spec", "data", "labels", "a", "0", "-", "²", "-1", "name"]
        return [
            {
                "op": pick(["add", "remove", "replace", "move", "copy", "test", "x"]),
                "path": "/" + "/".join(pick(words) for _ in range(self._random.randrange(4))),
                "from": "/" + pick(words),
                "value": self._objects.any(),
            }
            for _ in range(self._random.randrange(4))
        ]


def _path(row: BuiltinKind) -> str:
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    return root + ("/namespaces/default" if row.namespaced else "") + f"/{row.plural}"


@pytest.mark.parametrize("seed", range(4))
def test_every_endpoint_answers_any_request_with_a_status(seed: int) -> None:
    async def main() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            code, text = await answer(server, make("POST", crds, json.dumps(CRD).encode()))
            assert code == 201, text
            fuzzer, codes = EndpointFuzzer(server, seed), set()
            for _ in range(600):
                request = fuzzer.request()
                code, text = await answer(server, request)
                codes.add(code)
                expected = code < 500 or code == 501 or text.startswith(KNOWN_500)
                assert expected, (request.method, request.path, request.body[:2000], text)
            assert {200, 201, 400, 404, 409, 422} <= codes
            await asyncio.sleep(1)

    run_virtual(main())
