"""Creates the objects that users and Cluster API create, with owner references and labels."""

import base64
from typing import Any

from moxwell.api import registry
from moxwell.testing.two_regions import CAPI, INFRA, TwoRegions


async def apply_cluster(env: TwoRegions, name: str = "c", **spec: Any) -> dict[str, Any]:
    """Create a Cluster and its ProxmoxCluster, with owner references."""
    kube = env.kube
    ref = {"apiGroup": INFRA, "kind": "ProxmoxCluster", "name": name}
    head = {"name": name, "namespace": "default"}
    cluster = await kube.create(
        {
            "apiVersion": f"{CAPI}/v1beta2",
            "kind": "Cluster",
            "metadata": head,
            "spec": {"infrastructureRef": ref},
        },
        registry_of("Cluster"),
    )
    owner = _owner(cluster, "Cluster")
    default = {
        "controlPlaneEndpoint": {"host": "10.0.0.4", "port": 6443},
        "ipv4Config": {
            "addresses": ["10.0.0.10-10.0.0.250"],
            "prefix": 24,
            "gateway": "10.0.0.1",
        },
        "dnsServers": ["8.8.8.8"],
        "region": "north",
    }
    meta = {**head, "ownerReferences": [owner], "labels": {f"{CAPI}/cluster-name": name}}
    body = {"apiVersion": f"{INFRA}/v1beta2", "kind": "ProxmoxCluster", "metadata": meta}
    return await kube.create(
        {**body, "spec": _without_none({**default, **spec})}, registry_of("ProxmoxCluster")
    )


async def apply_machine(
    env: TwoRegions,
    name: str,
    cluster: str = "c",
    *,
    failure_domain: str = "",
    version: str = "v1.34.1",
    api: str = "v1beta2",
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Create a Machine with its bootstrap data, and its ProxmoxMachine."""
    labels = {f"{CAPI}/cluster-name": cluster}
    head = {"name": name, "namespace": "default", "labels": labels}
    await _create_bootstrap_secret(env, head)
    machine_spec: dict[str, Any] = {
        "clusterName": cluster,
        "version": version,
        "bootstrap": {"dataSecretName": name},
        "infrastructureRef": {"apiGroup": INFRA, "kind": "ProxmoxMachine", "name": name},
    }
    if failure_domain:
        machine_spec["failureDomain"] = failure_domain
    body = {"apiVersion": f"{CAPI}/v1beta2", "kind": "Machine", "metadata": head}
    machine = await env.kube.create({**body, "spec": machine_spec}, registry_of("Machine"))
    owned = {**head, **(meta or {}), "ownerReferences": [_owner(machine, "Machine")]}
    body = {"apiVersion": f"{INFRA}/{api}", "kind": "ProxmoxMachine", "metadata": owned}
    default: dict[str, Any] = {"templateID": 9000} if api == "v1beta2" and not spec else {}
    created: dict[str, Any] = await env.kube.create(
        {**body, "spec": {**default, **spec}}, registry_of("ProxmoxMachine", api)
    )
    return created


async def _create_bootstrap_secret(env: TwoRegions, metadata: dict[str, Any]) -> None:
    data = base64.b64encode(f"#cloud-config\n# join {metadata['name']}\n".encode()).decode()
    secret = {"value": data, "format": base64.b64encode(b"cloud-config").decode()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secret}
    await env.kube.create(body, registry_of("Secret"))


def registry_of(kind: str, version: str = "") -> Any:
    """The resource of a kind, by its name."""
    for cls in (*registry.KINDS, *registry.BUILTIN):
        found = cls.resource
        if found.kind == kind and (
            found.version == version or (not version and cls.declared.storage)
        ):
            return found
    raise LookupError(kind)


def _owner(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{CAPI}/v1beta2",
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
    }


def _without_none(spec: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in spec.items() if v is not None}
