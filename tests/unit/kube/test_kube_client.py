"""The client against a handler that records requests: what goes out, what comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import field

from moxwell.api.kinds import Object, Resource, kind
from moxwell.api.meta import ObjectMeta, Value
from moxwell.api.requests import Request, Response
from moxwell.errors import Bug, Unreachable
from moxwell.kube import errors, patch
from moxwell.kube.client import Kube
from moxwell.kube.codec import Bookmark, UnreadableObject, WatchEvent
from moxwell.testing.loop import run_virtual


class ToySpec(Value, frozen=True, kw_only=True):
    size: int = 1
    tags: tuple[str, ...] = ()


class ToyStatus(Value, frozen=True, kw_only=True):
    phase: str = ""


@kind(group="toys.example", version="v1", plural="toys", status=True)
class Toy(Object, frozen=True, kw_only=True):
    spec: ToySpec = field(default_factory=ToySpec)
    status: ToyStatus = field(default_factory=ToyStatus)


PODS = Resource("", "v1", "pods", "Pod")
TOY = Toy(metadata=ObjectMeta(name="a", namespace="n", resource_version="7"), spec=ToySpec(size=2))
RAW = b'{"apiVersion":"toys.example/v1","kind":"Toy","metadata":{"name":"a","namespace":"n",\
"resourceVersion":"7","managedFields":[{}]},"spec":{"size":2,"later":true}}'


class Script:
    """Answers each request with the next of its answers and keeps what was asked."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    async def handle(self, request: Request) -> Response:
        self.asked.append(request)
        return self.answers.pop(0)


def ok(body: bytes | dict[str, Any] = RAW) -> Response:
    return Response(status=200, body=body if isinstance(body, bytes) else msgspec.json.encode(body))


def failed(code: int, **status: Any) -> Response:
    return Response(status=code, body=msgspec.json.encode({"kind": "Status", **status}))


def stream(*chunks: bytes) -> Response:
    async def flow() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return Response(status=200, chunks=flow())


def listing(*names: str, more: str = "", version: str = "9") -> Response:
    items = [{"metadata": {"name": name}} for name in names]
    return ok({"metadata": {"resourceVersion": version, "continue": more}, "items": items})


async def test_get_reads_a_typed_object_and_skips_what_it_does_not_know() -> None:
    script = Script(ok())
    assert await Kube(script).get(Toy, "a", "n") == TOY
    assert script.asked[0].path == "/apis/toys.example/v1/namespaces/n/toys/a"


async def test_get_by_resource_gives_a_dict_without_managed_fields() -> None:
    found = await Kube(Script(ok())).get(Toy.resource, "a", "n")
    assert found["spec"] == {"size": 2, "later": True}
    assert "managedFields" not in found["metadata"]


async def test_managed_fields_are_kept_where_asked_for() -> None:
    found = await Kube(Script(ok()), keep_managed_fields=True).get(Toy.resource, "a", "n")
    assert found["metadata"]["managedFields"] == [{}]


async def test_find_gives_none_for_what_is_not_there() -> None:
    assert await Kube(Script(failed(404))).find(Toy, "a", "n") is None


async def test_list_follows_pages_and_keeps_the_selectors() -> None:
    script = Script(listing("a", "b", more="go"), listing("c"))
    page = await Kube(script).list(Toy, labels={"x": "1"}, fields="metadata.name!=z", limit=2)
    assert [toy.name for toy in page.items] == ["a", "b", "c"]
    assert page.resource_version == "9"
    assert script.asked[1].query == (
        ("limit", "2"),
        ("continue", "go"),
        ("labelSelector", "x=1"),
        ("fieldSelector", "metadata.name!=z"),
    )


async def test_an_expired_page_makes_the_list_start_again_whole() -> None:
    script = Script(listing("a", more="go"), failed(410, reason="Expired"), listing("a", "b"))
    page = await Kube(script).list(Toy, resource_version="0")
    assert [toy.name for toy in page.items] == ["a", "b"]
    assert script.asked[2].query == ()


async def test_one_unreadable_object_does_not_hide_the_others() -> None:
    items = [{"metadata": {"name": "bad"}, "spec": {"size": "?"}}, {"metadata": {"name": "good"}}]
    page = await Kube(Script(ok({"metadata": {}, "items": items}))).list(Toy)
    assert [toy.name for toy in page.items] == ["good"]
    assert [bad.metadata.name for bad in page.unreadable] == ["bad"]
    assert "bad" in str(page.unreadable[0].error)


async def test_nulls_of_go_programs_read_as_absent() -> None:
    body = {"metadata": {"name": "a", "labels": None}, "spec": {"tags": None}, "status": None}
    assert await Kube(Script(ok(body))).get(Toy, "a") == Toy(metadata=ObjectMeta(name="a"))


async def test_a_list_of_null_is_an_empty_list() -> None:
    assert (await Kube(Script(ok({"metadata": {}, "items": None}))).list(Toy)).items == ()


async def test_items_of_built_in_kinds_get_their_kind_back() -> None:
    page = await Kube(Script(listing("a"))).list(PODS)
    assert page.items[0]["kind"] == "Pod"
    assert page.items[0]["apiVersion"] == "v1"


async def test_a_table_is_read_page_by_page() -> None:
    def page(name: str, more: str) -> Response:
        rows = [{"cells": [name, None], "object": {"metadata": {"name": name}}}]
        columns = [{"name": "Name", "type": "string"}, {"name": "Age", "type": "date"}]
        meta = {"continue": more}
        return ok({"kind": "Table", "columnDefinitions": columns, "rows": rows, "metadata": meta})

    script = Script(page("a", "go"), page("b", ""))
    table = await Kube(script).table(Toy, "n", labels={"x": "1"})
    assert [row.cells for row in table.rows] == [("a", None), ("b", None)]
    assert "as=Table" in script.asked[0].headers["accept"]
    assert ("continue", "go") in script.asked[1].query


async def test_create_posts_with_kind_and_manager() -> None:
    script = Script(ok())
    await Kube(script, manager="me").create(TOY)
    asked = script.asked[0]
    assert (asked.method, asked.path) == ("POST", "/apis/toys.example/v1/namespaces/n/toys")
    assert msgspec.json.decode(asked.body)["kind"] == "Toy"
    assert asked.query == (("fieldManager", "me"),)
    assert asked.headers["content-type"] == "application/json"


async def test_a_dry_run_says_so() -> None:
    script = Script(ok())
    await Kube(script).create({"metadata": {"name": "a", "namespace": "n"}}, PODS, dry_run=True)
    assert ("dryRun", "All") in script.asked[0].query


async def test_update_sends_only_the_difference_guarded_by_the_version() -> None:
    script = Script(ok())
    new = msgspec.structs.replace(TOY, spec=ToySpec(size=3))
    await Kube(script).update(TOY, new)
    asked = script.asked[0]
    assert asked.headers["content-type"] == "application/merge-patch+json"
    assert msgspec.json.decode(asked.body) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"size": 3},
    }


async def test_update_without_a_difference_asks_nothing() -> None:
    script = Script()
    assert await Kube(script).update(TOY, TOY, subresource="status") == TOY
    assert script.asked == []


async def test_a_typed_object_cannot_be_replaced_as_it_is_not_whole() -> None:
    with pytest.raises(Bug, match="update or apply"):
        await Kube(Script()).replace(TOY)


async def test_a_dict_needs_to_say_where_it_lives() -> None:
    with pytest.raises(Bug, match="at="):
        await Kube(Script()).create({"metadata": {}})


WRITES: list[Any] = [
    pytest.param(
        lambda k: k.replace({"metadata": {"name": "p", "namespace": "n"}}, PODS),
        ("PUT", "/api/v1/namespaces/n/pods/p", "application/json"),
        id="replace",
    ),
    pytest.param(
        lambda k: k.merge(Toy, "a", {"spec": {"size": 4}}, "n"),
        ("PATCH", "/apis/toys.example/v1/namespaces/n/toys/a", "application/merge-patch+json"),
        id="merge",
    ),
    pytest.param(
        lambda k: k.json_patch(Toy, "a", [patch.put("/spec/size", 4)], "n"),
        ("PATCH", "/apis/toys.example/v1/namespaces/n/toys/a", "application/json-patch+json"),
        id="json patch",
    ),
    pytest.param(
        lambda k: k.apply(TOY, force=True),
        ("PATCH", "/apis/toys.example/v1/namespaces/n/toys/a", "application/apply-patch+yaml"),
        id="apply",
    ),
    pytest.param(
        lambda k: k.merge_status(Toy, "a", {"status": {"phase": "x"}}, "n"),
        (
            "PATCH",
            "/apis/toys.example/v1/namespaces/n/toys/a/status",
            "application/merge-patch+json",
        ),
        id="merge status",
    ),
    pytest.param(
        lambda k: k.replace(
            {"metadata": {"name": "p", "namespace": "n"}}, PODS, subresource="status"
        ),
        ("PUT", "/api/v1/namespaces/n/pods/p/status", "application/json"),
        id="replace status",
    ),
    pytest.param(
        lambda k: k.evict("p", "n", uid="u", grace=0),
        ("POST", "/api/v1/namespaces/n/pods/p/eviction", "application/json"),
        id="evict",
    ),
    pytest.param(
        lambda k: k.bind("p", "n", "node-1"),
        ("POST", "/api/v1/namespaces/n/pods/p/binding", "application/json"),
        id="bind",
    ),
]


@pytest.mark.parametrize("act, expected", WRITES)
async def test_a_write_goes_where_it_should(
    act: Callable[[Kube], Any], expected: tuple[str, str, str]
) -> None:
    script = Script(ok())
    await act(Kube(script))
    asked = script.asked[0]
    assert (asked.method, asked.path, asked.headers["content-type"]) == expected


async def test_delete_guards_by_uid_and_says_how() -> None:
    script = Script(ok({}))
    await Kube(script).delete(Toy, "a", "n", uid="u1", propagation="Foreground", grace=0)
    assert msgspec.json.decode(script.asked[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_delete_collection_selects() -> None:
    script = Script(ok({}))
    await Kube(script).delete_collection(Toy, "n", labels="a in (b)")
    assert script.asked[0].query == (("labelSelector", "a in (b)"),)
    assert script.asked[0].body == b""


async def test_a_token_is_asked_for() -> None:
    script = Script(ok({"status": {"token": "t0p"}}))
    assert await Kube(script).request_token("robot", "n", audience="x") == "t0p"


async def test_warnings_reach_whoever_wants_them() -> None:
    heard: list[str] = []
    warned = Response(status=200, headers={"warning": '299 - "old \\"v1\\"", 299 - "b"'}, body=RAW)
    await Kube(Script(warned), warn=heard.append).get(Toy, "a", "n")
    assert heard == ['old "v1"', "b"]


def test_no_answer_within_the_deadline_is_unreachable() -> None:
    class Silent:
        async def handle(self, request: Request) -> Response:
            await asyncio.sleep(3600)
            raise AssertionError

    with pytest.raises(Unreachable, match="no answer"):
        run_virtual(Kube(Silent(), deadline=timedelta(seconds=5)).get(Toy, "a"))


def event(type_: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def toy(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


async def test_a_watch_yields_changes_whatever_the_chunks_and_resumes_where_it_was() -> None:
    text = event("ADDED", toy("a", "11")) + event("MODIFIED", toy("a", "12"))
    script = Script(stream(text[:30], text[30:90], text[90:]), stream())
    watch = Kube(script).watch(Toy, "n", resource_version="10")
    seen = [e async for e in watch]
    assert [(e.type, e.object.name) for e in seen if isinstance(e, WatchEvent)] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
    ]
    assert [e async for e in watch] == []
    assert ("resourceVersion", "10") in script.asked[0].query
    assert ("resourceVersion", "12") in script.asked[1].query


async def test_bookmarks_move_the_version() -> None:
    watch = Kube(Script(stream(event("BOOKMARK", toy("", "40"))))).watch(Toy, resource_version="3")
    assert [e async for e in watch] == [Bookmark("40")]
    assert watch.resource_version == "40"


async def test_initial_events_end_with_a_bookmark_and_are_not_asked_for_twice() -> None:
    end = {
        "metadata": {"resourceVersion": "50", "annotations": {"k8s.io/initial-events-end": "true"}}
    }
    first = stream(
        event("ADDED", toy("b", "48")), event("ADDED", toy("a", "2")), event("BOOKMARK", end)
    )
    script = Script(first, stream())
    watch = Kube(script).watch(Toy, initial=True)
    seen = [e async for e in watch]
    assert seen[-1] == Bookmark("50", True)
    assert [e async for e in watch] == []
    assert ("sendInitialEvents", "true") in script.asked[0].query
    assert ("resourceVersion", "50") in script.asked[1].query
    assert all(name != "sendInitialEvents" for name, _ in script.asked[1].query)


async def test_a_stream_cut_within_the_initial_events_starts_them_again() -> None:
    script = Script(stream(event("ADDED", toy("b", "48"))), stream())
    watch = Kube(script).watch(Toy, initial=True)
    assert len([e async for e in watch]) == 1
    assert [e async for e in watch] == []
    assert ("sendInitialEvents", "true") in script.asked[1].query


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(stream(event("ERROR", {"code": 410, "reason": "Expired"})), id="as an event"),
        pytest.param(failed(410, reason="Expired"), id="as an answer"),
    ],
)
async def test_a_forgotten_version_raises_gone(response: Response) -> None:
    with pytest.raises(errors.Gone):
        [e async for e in Kube(Script(response)).watch(Toy, resource_version="1")]


async def test_an_unreadable_change_is_set_aside_and_the_watch_goes_on() -> None:
    bad = toy("x", "13") | {"spec": {"size": []}}
    watch = Kube(Script(stream(event("ADDED", bad) + event("DELETED", toy("y", "14"))))).watch(Toy)
    seen = [e async for e in watch]
    assert isinstance(seen[0], UnreadableObject)
    assert seen[0].metadata.name == "x"
    assert isinstance(seen[1], WatchEvent)


async def test_an_event_written_in_another_order_is_read_too() -> None:
    line = b'{ "object": {"metadata": {"name": "a"}}, "type": "ADDED" }\n'
    seen = [e async for e in Kube(Script(stream(line))).watch(Toy)]
    assert seen == [WatchEvent("ADDED", Toy(metadata=ObjectMeta(name="a")))]


async def test_a_watch_by_resource_gives_dicts() -> None:
    watch = Kube(Script(stream(event("ADDED", toy("a", "3"))))).watch(PODS)
    pod = toy("a", "3") | {"apiVersion": "v1", "kind": "Pod"}
    assert [e async for e in watch] == [WatchEvent("ADDED", pod)]
    assert watch.resource_version == "3"
