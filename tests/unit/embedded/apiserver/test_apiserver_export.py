"""Export and import of all objects of an API server."""

import asyncio
from typing import Any

import yaml

from moxwell.embedded.apiserver import export
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import CM, CRDS, WIDGETS, ApiClient, configmap, make_crd, widget
from moxwell.testing.loop import LoopClock, run_virtual


async def _fill(api: ApiClient) -> None:
    await api.post(CRDS, make_crd())
    owner = (await api.post(WIDGETS, widget("owner", {"a": 1}))).object
    await api.patch(f"{WIDGETS}/owner/status", {"status": {"ready": True}})
    ref = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner"}
    child = configmap("child", k="v")
    child["metadata"]["ownerReferences"] = [{**ref, "uid": owner["metadata"]["uid"]}]
    await api.post(CM, child)
    await asyncio.sleep(1)


def _exported_and_imported(*, whole: bool) -> Any:
    async def main() -> Any:
        async with (
            EmbeddedApiServer(clock=LoopClock()) as one,
            EmbeddedApiServer(clock=LoopClock()) as two,
        ):
            await _fill(ApiClient(one))
            text = "".join([export.to_yaml(o) async for o in export.dump(one, complete=whole)])
            count = await export.load(two, list(yaml.safe_load_all(text)))
            await asyncio.sleep(1)
            api = ApiClient(two)
            paths = (f"{WIDGETS}/owner", f"{CM}/child")
            return count, [(await api.get(path)).object for path in paths], text

    return run_virtual(main())


def test_complete_documents_keep_owners_and_status() -> None:
    count, (owner, child), _ = _exported_and_imported(whole=True)
    assert count == 3
    assert owner["status"] == {"ready": True}
    assert child["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]


def test_portable_documents_omit_server_fields() -> None:
    _, (owner, child), text = _exported_and_imported(whole=False)
    assert owner["spec"] == {"a": 1}
    assert "ownerReferences" not in child["metadata"]
    assert not any(word in text for word in ("uid:", "resourceVersion", "managedFields", "ready"))


def test_default_objects_are_not_exported() -> None:
    async def main() -> list[Any]:
        async with EmbeddedApiServer(clock=LoopClock(), root_ca="pem") as api_server:
            return [o async for o in export.dump(api_server)]

    assert run_virtual(main()) == []
