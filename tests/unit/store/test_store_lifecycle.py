"""Owners and dependants, finalizers, namespaces, definitions: what goes, and when."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moxwell.testing.asks import CM, CRDS, WIDGETS, Asks, configmap, definition, widget

Play = Callable[..., Any]


def owned(name: str, owner: dict[str, Any], *, block: bool = False) -> dict[str, Any]:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
    ref |= {"uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}
    made = configmap(name)
    made["metadata"]["ownerReferences"] = [ref]
    return made


async def settle() -> None:
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    "policy, stays",
    [
        pytest.param("Background", False, id="the dependant follows"),
        pytest.param("Foreground", False, id="the dependant goes first"),
        pytest.param("Orphan", True, id="the dependant stays"),
    ],
)
def test_propagation(play: Play, policy: str, stays: bool) -> None:
    async def story(asks: Asks) -> None:
        owner = (await asks.post(CM, configmap("owner"))).object
        await asks.post(CM, owned("child", owner, block=True))
        await asks.delete(f"{CM}/owner", propagationPolicy=policy)
        await settle()
        assert (await asks.get(f"{CM}/owner")).status == 404
        child = await asks.get(f"{CM}/child")
        assert (child.status == 200) == stays
        if stays:
            assert "ownerReferences" not in child.object["metadata"]

    play(story)


def test_an_owner_in_the_foreground_waits_for_a_held_dependant(play: Play) -> None:
    async def story(asks: Asks) -> None:
        owner = (await asks.post(CM, configmap("owner"))).object
        child = owned("child", owner, block=True)
        child["metadata"]["finalizers"] = ["example.com/hold"]
        await asks.post(CM, child)
        await asks.delete(f"{CM}/owner", propagationPolicy="Foreground")
        await settle()
        assert (await asks.get(f"{CM}/owner")).status == 200
        await asks.patch(f"{CM}/child", {"metadata": {"finalizers": None}})
        await settle()
        assert (await asks.get(f"{CM}/owner")).status == 404

    play(story)


def test_a_dependant_of_nobody_is_collected(play: Play) -> None:
    async def story(asks: Asks) -> None:
        ghost = {"metadata": {"name": "ghost", "uid": "no-such-uid"}}
        await asks.post(CM, owned("child", ghost))
        await settle()
        assert (await asks.get(f"{CM}/child")).status == 404

    play(story)


def test_a_finalizer_holds_until_it_is_taken_off(play: Play) -> None:
    async def story(asks: Asks) -> None:
        held = configmap("a")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await asks.post(CM, held)
        gone = (await asks.delete(f"{CM}/a")).object
        assert gone["metadata"]["deletionTimestamp"]
        again = await asks.post(CM, configmap("a"))
        assert again.status == 409
        await asks.patch(f"{CM}/a", {"metadata": {"finalizers": []}})
        assert (await asks.get(f"{CM}/a")).status == 404

    play(story)


def test_a_namespace_takes_everything_with_it(play: Play) -> None:
    async def story(asks: Asks) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await asks.post("/api/v1/namespaces", space)
        await asks.post("/api/v1/namespaces/team/configmaps", configmap("a"))
        await asks.delete("/api/v1/namespaces/team")
        refused = await asks.post("/api/v1/namespaces/team/configmaps", configmap("b"))
        assert refused.status in (403, 404)
        await settle()
        assert (await asks.get("/api/v1/namespaces/team")).status == 404
        assert (await asks.get("/api/v1/configmaps")).object["items"] == []

    play(story)


def test_a_namespace_says_what_holds_it(play: Play) -> None:
    async def story(asks: Asks) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await asks.post("/api/v1/namespaces", space)
        held = configmap("a")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await asks.post("/api/v1/namespaces/team/configmaps", held)
        await asks.delete("/api/v1/namespaces/team")
        await settle()
        status = (await asks.get("/api/v1/namespaces/team")).object["status"]
        texts = [c["message"] for c in status["conditions"] if c["status"] == "True"]
        assert any("example.com/hold in 1 resource instances" in text for text in texts)

    play(story)


def test_a_definition_takes_its_objects_with_it(play: Play) -> None:
    async def story(asks: Asks) -> None:
        await asks.post(CRDS, definition())
        assert (await asks.post(WIDGETS, widget("w", {}))).status == 201
        await asks.delete(f"{CRDS}/widgets.example.com")
        await settle()
        assert (await asks.get(f"{CRDS}/widgets.example.com")).status == 404
        assert (await asks.handler.handle(_get(WIDGETS))).status == 404

    play(story)


def _get(path: str) -> Any:
    from moxwell.api.wire import Request

    return Request(method="GET", path=path)


def test_a_definition_is_served_and_says_so(play: Play) -> None:
    async def story(asks: Asks) -> None:
        await asks.post(CRDS, definition())
        await settle()
        status = (await asks.get(f"{CRDS}/widgets.example.com")).object["status"]
        held = {c["type"]: c["status"] for c in status["conditions"]}
        assert held == {"NamesAccepted": "True", "Established": "True"}
        assert status["storedVersions"] == ["v1"]

    play(story)
