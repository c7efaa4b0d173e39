"""Garbage collection, finalizers, namespace deletion, CRD lifecycle, event expiry."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moxwell.testing.api_calls import CM, CRDS, WIDGETS, ApiClient, configmap, make_crd, widget

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
    async def story(api: ApiClient) -> None:
        owner = (await api.post(CM, configmap("owner"))).object
        await api.post(CM, owned("child", owner, block=True))
        await api.delete(f"{CM}/owner", propagationPolicy=policy)
        await settle()
        assert (await api.get(f"{CM}/owner")).status == 404
        child = await api.get(f"{CM}/child")
        assert (child.status == 200) == stays
        if stays:
            assert "ownerReferences" not in child.object["metadata"]

    play(story)


def test_foreground_deletion_waits_for_a_dependent_with_finalizers(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        owner = (await api.post(CM, configmap("owner"))).object
        child = owned("child", owner, block=True)
        child["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post(CM, child)
        await api.delete(f"{CM}/owner", propagationPolicy="Foreground")
        await settle()
        assert (await api.get(f"{CM}/owner")).status == 200
        await api.patch(f"{CM}/child", {"metadata": {"finalizers": None}})
        await settle()
        assert (await api.get(f"{CM}/owner")).status == 404

    play(story)


def test_a_dependent_without_owner_is_collected(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        ghost = {"metadata": {"name": "ghost", "uid": "no-such-uid"}}
        await api.post(CM, owned("child", ghost))
        await settle()
        assert (await api.get(f"{CM}/child")).status == 404

    play(story)


def test_a_finalizer_delays_deletion_until_removed(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        held = configmap("a")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post(CM, held)
        gone = (await api.delete(f"{CM}/a")).object
        assert gone["metadata"]["deletionTimestamp"]
        again = await api.post(CM, configmap("a"))
        assert again.status == 409
        await api.patch(f"{CM}/a", {"metadata": {"finalizers": []}})
        assert (await api.get(f"{CM}/a")).status == 404

    play(story)


def test_deleting_a_namespace_deletes_its_objects(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await api.post("/api/v1/namespaces", space)
        await api.post("/api/v1/namespaces/team/configmaps", configmap("a"))
        await api.delete("/api/v1/namespaces/team")
        error_response = await api.post("/api/v1/namespaces/team/configmaps", configmap("b"))
        assert error_response.status in (403, 404)
        await settle()
        assert (await api.get("/api/v1/namespaces/team")).status == 404
        assert (await api.get("/api/v1/configmaps")).object["items"] == []

    play(story)


def test_a_terminating_namespace_reports_remaining_content(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await api.post("/api/v1/namespaces", space)
        held = configmap("a")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post("/api/v1/namespaces/team/configmaps", held)
        await api.delete("/api/v1/namespaces/team")
        await settle()
        status = (await api.get("/api/v1/namespaces/team")).object["status"]
        texts = [c["message"] for c in status["conditions"] if c["status"] == "True"]
        assert any("example.com/hold in 1 resource instances" in text for text in texts)

    play(story)


def test_deleting_a_crd_deletes_its_objects(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CRDS, make_crd())
        assert (await api.post(WIDGETS, widget("w", {}))).status == 201
        await api.delete(f"{CRDS}/widgets.example.com")
        await settle()
        assert (await api.get(f"{CRDS}/widgets.example.com")).status == 404
        assert (await api.handler.handle(_get(WIDGETS))).status == 404

    play(story)


def _get(path: str) -> Any:
    from moxwell.api.requests import Request

    return Request(method="GET", path=path)


def test_a_crd_becomes_established(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CRDS, make_crd())
        await settle()
        status = (await api.get(f"{CRDS}/widgets.example.com")).object["status"]
        held = {c["type"]: c["status"] for c in status["conditions"]}
        assert held == {"NamesAccepted": "True", "Established": "True"}
        assert status["storedVersions"] == ["v1"]

    play(story)


def test_events_expire_after_an_hour(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        path = "/api/v1/namespaces/default/events"
        about = {"kind": "ConfigMap", "name": "a", "namespace": "default"}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}
        assert (await api.post(path, {**event, "involvedObject": about})).status == 201
        await asyncio.sleep(3000)
        assert (await api.get(f"{path}/e")).status == 200
        await asyncio.sleep(1500)
        assert (await api.get(f"{path}/e")).status == 404

    play(story)


def test_a_claim_in_use_stays_until_its_pod_is_gone(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        claims, pods = (
            f"/api/v1/namespaces/default/{k}" for k in ("persistentvolumeclaims", "pods")
        )
        ask = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}
        await api.post(claims, {**head, "spec": ask})
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        assert (await api.post(pods, pod)).status == 201
        await api.delete(f"{claims}/c")
        await settle()
        assert (await api.get(f"{claims}/c")).status == 200
        await api.delete(f"{pods}/p")
        await settle()
        assert (await api.get(f"{claims}/c")).status == 404

    play(story)


def test_a_terminating_pod_without_node_is_deleted(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "gone"}
        await api.post(
            pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        )
        await api.delete(f"{pods}/p")
        assert (await api.get(f"{pods}/p")).status == 200
        await asyncio.sleep(100)
        assert (await api.get(f"{pods}/p")).status == 404

    play(story)


def test_a_node_loses_its_taint_when_it_is_ready(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        made = (await api.post("/api/v1/nodes", node)).object
        assert [t["key"] for t in made["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch("/api/v1/nodes/n/status", {"status": ready})
        await settle()
        assert "taints" not in (await api.get("/api/v1/nodes/n")).object["spec"]

    play(story)
