"""Lists and watches: order of events, resumption, bookmarks, pages."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.watches import FRESH_SECONDS, SHORTEST_HISTORY
from moxwell.testing.api_calls import CM, ApiClient, configmap
from moxwell.testing.loop import LoopClock, run_virtual

Play = Callable[..., Any]


async def _types(api: ApiClient, count: int, **query: Any) -> list[tuple[str, str]]:
    events = await api.watch(CM, **query)
    found = []
    async for event in events:
        found.append((event["type"], event["object"]["metadata"].get("name", "")))
        if len(found) == count:
            break
    return found


def test_a_resumed_watch_gets_every_change(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        start = (await api.get(CM)).object["metadata"]["resourceVersion"]
        await api.post(CM, configmap("a"))
        await api.patch(f"{CM}/a", {"data": {"k": "v"}})
        await api.delete(f"{CM}/a")
        found = await _types(api, 3, resourceVersion=start)
        assert found == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]

    play(story)


def test_a_watch_older_than_the_history_gets_410(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        events = await api.watch(CM, resourceVersion=1)
        event = await anext(events)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)

    play(story)


async def _change(api: ApiClient, times: int) -> str:
    """Create a ConfigMap and change it; returns the revision before the first change."""
    start = (await api.post(CM, configmap("a"))).object["metadata"]["resourceVersion"]
    for number in range(times):
        await api.patch(f"{CM}/a", {"data": {"k": str(number)}})
    return str(start)


@pytest.mark.parametrize(
    "changes, seconds, resumes",
    [
        pytest.param(150, FRESH_SECONDS - 1, True, id="fresh"),
        pytest.param(150, FRESH_SECONDS + 1, False, id="old"),
        pytest.param(SHORTEST_HISTORY - 2, 10 * FRESH_SECONDS, True, id="old, but few"),
    ],
)
def test_old_changes_are_dropped_beyond_a_number(
    play: Play, changes: int, seconds: float, resumes: bool
) -> None:
    async def story(api: ApiClient) -> None:
        start = await _change(api, changes)
        await asyncio.sleep(seconds)
        await api.patch(f"{CM}/a", {"data": {"k": "last"}})
        event = await anext(await api.watch(CM, resourceVersion=start))
        assert event["type"] == ("MODIFIED" if resumes else "ERROR")

    play(story)


def test_old_changes_are_dropped_without_a_further_change(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        start = await _change(api, 150)
        async for _ in await api.watch(CM, timeoutSeconds=300):
            pass
        event = await anext(await api.watch(CM, resourceVersion=start))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)

    play(story)


def test_leaving_a_selector_is_a_deletion(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        labelled = configmap("a")
        labelled["metadata"]["labels"] = {"x": "1"}
        start = (await api.post(CM, labelled)).object["metadata"]["resourceVersion"]
        await api.patch(f"{CM}/a", {"metadata": {"labels": {"x": "2"}}})
        found = await _types(api, 1, resourceVersion=start, labelSelector="x=1")
        assert found == [("DELETED", "a")]

    play(story)


def test_initial_events_end_with_a_bookmark(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CM, configmap("a"))
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        found = await _types(api, 2, allowWatchBookmarks="true", **query)
        assert found == [("ADDED", "a"), ("BOOKMARK", "")]

    play(story)


def test_bookmarks_are_sent_when_idle(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        start = (await api.get(CM)).object["metadata"]["resourceVersion"]
        events = await api.watch(CM, resourceVersion=start, allowWatchBookmarks="true")
        assert (await anext(events))["type"] == "BOOKMARK"

    play(story)


def test_a_watch_ends_at_its_timeout(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        events = await api.watch(CM, timeoutSeconds=30)
        assert [event async for event in events] == []

    play(story)


def test_pages_are_consistent(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        for name in ("a", "b", "c"):
            await api.post(CM, configmap(name))
        first = (await api.get(CM, limit=2)).object
        await api.delete(f"{CM}/c")
        await api.post(CM, configmap("d"))
        rest = await api.get(CM, limit=2, **{"continue": first["metadata"]["continue"]})
        names = [i["metadata"]["name"] for i in [*first["items"], *rest.object["items"]]]
        assert names == ["a", "b", "c"]

    play(story)


_steps = st.lists(
    st.tuples(st.sampled_from("pud"), st.sampled_from("abc"), st.sampled_from("xy")), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(steps=_steps, away=st.integers(0, 25), selector=st.sampled_from(["", "l=x"]))
def test_list_and_watch_lead_to_the_current_state(
    steps: list[tuple[str, str, str]], away: int, selector: str
) -> None:
    """A list followed by a watch leads to the current state."""

    async def main() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as api_server:
            api = ApiClient(api_server)
            query = {"labelSelector": selector} if selector else {}
            known: dict[str, Any] = {}
            start = "0"
            for at, (what, name, label) in enumerate(steps):
                if at == away:
                    listed = (await api.get(CM, **query)).object
                    known = {
                        i["metadata"]["name"]: i["metadata"]["labels"] for i in listed["items"]
                    }
                    start = listed["metadata"]["resourceVersion"]
                await _step(api, what, name, label)
            if away >= len(steps):
                return
            events = await api.watch(CM, resourceVersion=start, timeoutSeconds=1, **query)
            async for event in events:
                meta = event["object"]["metadata"]
                if event["type"] == "DELETED":
                    del known[meta["name"]]
                else:
                    known[meta["name"]] = meta["labels"]
            now = (await api.get(CM, **query)).object["items"]
            assert known == {i["metadata"]["name"]: i["metadata"]["labels"] for i in now}

    run_virtual(main())


async def _step(api: ApiClient, what: str, name: str, label: str) -> None:
    obj = configmap(name)
    obj["metadata"]["labels"] = {"l": label}
    if what == "p":
        await api.post(CM, obj)
    elif what == "u":
        await api.put(f"{CM}/{name}", obj)
    else:
        await api.delete(f"{CM}/{name}")
