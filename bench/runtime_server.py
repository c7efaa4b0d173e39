"""
A server with prepared responses for bench/runtime.py: one list, one watch, some discovery.

It serves what kopf and the official client request before they list and watch. Objects have about
2.2 KB, managedFields included, as from kube-apiserver.
"""

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

GROUP, VERSION, PLURAL, KIND = "bench.moxwell.dev", "v1", "machines", "Machine"
BATCH = 1 << 16


def machine(number: int, version: int) -> dict[str, Any]:
    """An object with the size and structure of a ProxmoxMachine."""
    name = f"team-{number % 40}-md-0-{number:05d}"
    fields: dict[str, Any] = {
        f"f:{part}": {} for part in ("cores", "memoryMiB", "template", "disks", "network")
    }
    times = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 40}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(version),
            "generation": 3,
            "creationTimestamp": times,
            "labels": {
                "cluster.x-k8s.io/cluster-name": f"team-{number % 40}",
                "cluster.x-k8s.io/deployment-name": f"team-{number % 40}-md-0",
                "topology.kubernetes.io/region": f"region-{number % 3}",
            },
            "annotations": {"cluster.x-k8s.io/cloned-from-name": f"team-{number % 40}-md-0"},
            "finalizers": ["proxmoxmachine.infrastructure.cluster.x-k8s.io"],
            "ownerReferences": [
                {
                    "apiVersion": "cluster.x-k8s.io/v1beta1",
                    "kind": "Machine",
                    "name": name,
                    "uid": f"11111111-0000-4000-8000-{number:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "time": times,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": fields},
                }
                for manager in ("manager", "moxwell")
            ],
        },
        "spec": {
            "region": f"region-{number % 3}",
            "cores": 4,
            "memoryMiB": 8192,
            "template": 9000,
            "virtualMachineID": 1000 + number,
            "providerID": f"proxmox://region-{number % 3}/{1000 + number}",
            "disks": [{"name": "scsi0", "sizeGiB": 40, "storage": "local-lvm"}],
            "network": [{"name": "net0", "bridge": "vmbr0", "model": "virtio", "mtu": 1500}],
        },
        "status": {
            "ready": True,
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250}"}
            ],
            "conditions": [
                {
                    "type": type_,
                    "status": "True",
                    "reason": "AsExpected",
                    "message": "",
                    "lastTransitionTime": times,
                    "observedGeneration": 3,
                }
                for type_ in ("Ready", "VMProvisioned", "AddressesReported")
            ],
        },
    }


def make_app(count: int, events: int) -> web.Application:
    """The API: a list, a watch that ends after all events, and discovery."""
    items = [machine(n, n + 1) for n in range(count)]
    meta = {"resourceVersion": str(count)}
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": f"{KIND}List", "metadata": meta}
    listed = json.dumps({**head, "items": items}, separators=(",", ":")).encode()
    lines = [
        json.dumps(
            {"type": "MODIFIED", "object": machine(n % count, count + n + 1)}, separators=(",", ":")
        ).encode()
        + b"\n"
        for n in range(events)
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") not in ("1", "true"):
            return web.Response(body=listed, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        batch = b""
        for line in lines[max(0, int(request.query.get("resourceVersion", 0)) - count) :]:
            batch += line
            if len(batch) > BATCH:
                await response.write(batch)
                batch = b""
        await response.write(batch)
        await asyncio.sleep(3600)
        return response

    app = web.Application()
    path = f"/apis/{GROUP}/{VERSION}"
    app.router.add_get(f"{path}/{PLURAL}", answer)
    for route, body in discovery().items():
        app.router.add_get(route, _json(body))
    return app


def discovery() -> dict[str, Any]:
    """The discovery documents that clients read first."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    resource = {
        "name": PLURAL,
        "singularName": KIND.lower(),
        "namespaced": True,
        "kind": KIND,
        "verbs": ["get", "list", "watch", "patch", "create", "update", "delete"],
    }
    spaces = {**resource, "name": "namespaces", "singularName": "namespace", "namespaced": False}
    core = {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
    empty = {**core, "resources": [{**spaces, "kind": "Namespace"}]}
    return {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": [group]},
        "/api/v1": empty,
        f"/apis/{GROUP}/{VERSION}": {**empty, "groupVersion": f"{GROUP}/{VERSION}"}
        | {"resources": [resource]},
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    }


def _json(body: Any) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


async def main(count: int, events: int) -> None:
    """Serve on a free port, print it, and run until killed."""
    runner = web.AppRunner(make_app(count, events), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
