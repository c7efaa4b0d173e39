"""Create, read, update, delete, and their errors."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moxwell.testing.api_calls import CM, JSON_PATCH, ApiClient, configmap

Play = Callable[..., Any]


def test_what_is_created_can_be_read(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        made = await api.post(CM, configmap("a", k="v"))
        found = await api.get(f"{CM}/a")
        assert made.status == 201
        assert found.object == made.object
        assert found.object["metadata"]["uid"]

    play(story)


def test_an_unchanged_update_keeps_the_revision(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        made = (await api.post(CM, configmap("a", k="v"))).object
        again = (await api.put(f"{CM}/a", configmap("a", k="v"))).object
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    play(story)


def test_a_stale_replace_is_a_conflict(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        made = (await api.post(CM, configmap("a", k="v"))).object
        await api.patch(f"{CM}/a", {"data": {"k": "w"}})
        made["data"]["k"] = "x"
        error_response = await api.put(f"{CM}/a", made)
        assert (error_response.status, error_response.object["reason"]) == (409, "Conflict")

    play(story)


@pytest.mark.parametrize(
    "obj, status, reason",
    [
        pytest.param(configmap("A_"), 422, "Invalid", id="a name that is none"),
        pytest.param(configmap(""), 422, "Invalid", id="no name"),
        pytest.param({**configmap("a"), "data": {"k": 1}}, 400, "BadRequest", id="a wrong type"),
        pytest.param({**configmap("a"), "kind": "Secret"}, 400, "BadRequest", id="another kind"),
        pytest.param(configmap("a", **{"b c": ""}), 422, "Invalid", id="a bad key"),
    ],
)
def test_invalid_objects_are_rejected(play: Play, obj: Any, status: int, reason: str) -> None:
    async def story(api: ApiClient) -> None:
        error_response = await api.post(CM, obj)
        assert (error_response.status, error_response.object["reason"]) == (status, reason)

    play(story)


@pytest.mark.parametrize(
    "validation, status, warned",
    [
        pytest.param("Strict", 400, False, id="strict refuses"),
        pytest.param("Warn", 201, True, id="warn warns"),
        pytest.param("Ignore", 201, False, id="ignore says nothing"),
    ],
)
def test_unknown_fields(play: Play, validation: str, status: int, warned: bool) -> None:
    async def story(api: ApiClient) -> None:
        answer = await api.post(CM, {**configmap("a"), "dta": {}}, fieldValidation=validation)
        assert answer.status == status
        assert ("warning" in answer.headers) == warned

    play(story)


def test_a_dry_run_leaves_nothing(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        assert (await api.post(CM, configmap("a"), dryRun="All")).status == 201
        assert (await api.get(f"{CM}/a")).status == 404

    play(story)


def test_a_json_patch_is_all_or_nothing(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CM, configmap("a", k="v"))
        steps = [
            {"op": "replace", "path": "/data/k", "value": "w"},
            {"op": "test", "path": "/data/k", "value": "v"},
        ]
        assert (await api.patch(f"{CM}/a", steps, kind=JSON_PATCH)).status == 422
        assert (await api.get(f"{CM}/a")).object["data"] == {"k": "v"}

    play(story)


def test_concurrent_writes_are_serialized(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CM, configmap("a"))
        patches = [api.patch(f"{CM}/a", {"data": {f"k{n}": "v"}}) for n in range(20)]
        answers = await asyncio.gather(*patches)
        assert {a.status for a in answers} == {200}
        assert len((await api.get(f"{CM}/a")).object["data"]) == 20

    play(story)


def test_a_secret_is_never_in_an_error(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        path = "/api/v1/namespaces/default/secrets"
        error_response = await api.post(path, {**secret, "data": {"k": "hush!!"}})
        assert error_response.status == 400
        assert "hush" not in str(error_response.object)

    play(story)


def test_impersonation_is_rejected(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        from moxwell.api.requests import Request

        request = Request(method="GET", path=CM, headers={"impersonate-user": "root"})
        assert (await api.handler.handle(request)).status == 403

    play(story)
