"""Calls a request handler in-process, for tests: methods per verb, results as status and object."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.requests import Handler, Request, UserInfo

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ApiResult:
    """Status, headers and the object of the body."""

    status: int
    object: Any
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Calls one handler as one user."""

    handler: Handler
    user: UserInfo | None = None

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        extra: Mapping[str, str] | None = None,
        **query: Any,
    ) -> ApiResult:
        headers = {
            "content-type": kind,
            "user-agent": "test/1",
            "accept": query.pop("accept", "*/*"),
            **(extra or {}),
        }
        request = Request(
            method=method,
            path=path,
            query=tuple((key, str(value)) for key, value in query.items()),
            headers=headers,
            body=b"" if body is None else json.dumps(body).encode(),
            user=self.user,
        )
        response = await self.handler.handle(request)
        found = json.loads(response.body) if response.body.strip() else None
        return ApiResult(response.status, found, dict(response.headers))

    async def get(self, path: str, **query: Any) -> ApiResult:
        return await self("GET", path, **query)

    async def post(self, path: str, body: Object, **query: Any) -> ApiResult:
        return await self("POST", path, body, **query)

    async def put(self, path: str, body: Object, **query: Any) -> ApiResult:
        return await self("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, *, kind: str = MERGE, **query: Any) -> ApiResult:
        return await self("PATCH", path, body, kind=kind, **query)

    async def apply(self, path: str, body: Object, manager: str, **query: Any) -> ApiResult:
        return await self("PATCH", path, body, kind=APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, options: Object | None = None, **query: Any) -> ApiResult:
        return await self("DELETE", path, options, **query)

    async def watch(self, path: str, **query: Any) -> AsyncIterator[Object]:
        """Open a watch and yield its events."""
        wanted = {"watch": "true", **query}
        request = Request(
            method="GET", path=path, query=tuple((k, str(v)) for k, v in wanted.items())
        )
        response = await self.handler.handle(request)
        assert response.chunks is not None, response.body
        return _events(response.chunks)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Object]:
    async for chunk in chunks:
        for line in chunk.splitlines():
            yield json.loads(line)


def configmap(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def make_crd(
    schema: Object | None = None,
    *,
    plural: str = "widgets",
    group: str = "example.com",
    scope: str = "Namespaced",
    versions: tuple[str, ...] = ("v1",),
    **more: Any,
) -> Object:
    """Build a CRD; the first version is stored, all versions have the schema."""
    kind = plural[:-1].capitalize()
    root = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    listed = [
        {
            "name": name,
            "served": True,
            "storage": at == 0,
            "schema": {"openAPIV3Schema": root},
            "subresources": {"status": {}},
            **more,
        }
        for at, name in enumerate(versions)
    ]
    names = {"plural": plural, "singular": plural[:-1], "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": listed},
    }


CM = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def widget(name: str, spec: Object | None = None, **meta: Any) -> Object:
    head = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, **meta}}
    return {**head, "spec": spec} if spec is not None else head
