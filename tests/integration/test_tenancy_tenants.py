"""The permissions of a tenant: its own clusters, and never a Proxmox secret."""

import dataclasses
from typing import Any

import pytest

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.kinds import Resource
from moxwell.api.requests import Request, Response, UserInfo
from moxwell.errors import Denied
from moxwell.kube.client import Kube
from moxwell.runtime.tenant_clients import SECRETS
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import NAMESPACES, TenantWorld, tenancy

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


class As:
    """The API as one user sees it."""

    def __init__(self, world: TenantWorld, *groups: str) -> None:
        self._store = world.two_regions.store
        self._user = UserInfo(name="somebody", groups=(*groups, "system:authenticated"))

    async def handle(self, request: Request) -> Response:
        return await self._store.handle(dataclasses.replace(request, user=self._user))


def tenant(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps.cozystack.io/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def made(w: TenantWorld, name: str) -> Any:
    found = await w.kube.find(Tenant, name, "default")
    return found and found.status.namespace


async def secret(w: TenantWorld, name: str, space: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": space}}
    await w.kube.create(body | {"stringData": {"secret": "s3cret"}}, SECRETS)


def test_a_tenant_never_reads_proxmox_credentials() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant("red", resourceQuotas={"cpu": 4}))
            space = await w.until(lambda: made(w, "red"))
            assert space == "tenant-red"
            cluster = {
                "apiVersion": "apps.cozystack.io/v1alpha1",
                "kind": "Kubernetes",
                "metadata": {"name": "c1", "namespace": space},
                "spec": {"nodeGroups": [{"name": "g", "replicas": 1}]},
            }
            admin = Kube(As(w, f"{space}-admin"))
            await admin.create(cluster, Kubernetes.resource)
            await secret(w, "proxmox", space)  # even in the namespace of the tenant
            await secret(w, "proxmox", "default")

            async def published() -> Any:
                return await w.kube.find(SECRETS, "c1-kubeconfig", space)

            await w.until(published)
            await w.two_regions.clock.sleep(120)  # roles follow the clusters
            assert (await admin.get(SECRETS, "c1-kubeconfig", space))["data"]
            for role in ("view", "use", "admin", "super-admin"):
                kube = Kube(As(w, f"{space}-{role}"))
                for where in (space, "default"):
                    with pytest.raises(Denied):
                        await kube.get(SECRETS, "proxmox", where)
                    with pytest.raises(Denied):
                        await kube.list(SECRETS, where)
                with pytest.raises(Denied):
                    await kube.get(SECRETS, "c1-ca", space)
            with pytest.raises(Denied):
                await Kube(As(w, f"{space}-view")).get(SECRETS, "c1-kubeconfig", space)
            with pytest.raises(Denied):
                await Kube(As(w, "tenant-blue-admin")).list(Kubernetes, space)
            quota = await w.kube.get(QUOTAS, "tenant-quota", space)
            assert quota["spec"]["hard"] == {"requests.cpu": "4"}

    run_virtual(story())


def test_deleting_a_tenant_deletes_everything_in_it() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant("red"))
            space = await w.until(lambda: made(w, "red"))
            await w.kube.delete(Tenant, "red", "default")

            async def gone() -> bool:
                left = await w.kube.find(Tenant, "red", "default")
                return left is None and await w.kube.find(NAMESPACES, space) is None

            await w.until(gone)

    run_virtual(story())


def test_a_namespace_of_another_owner_is_refused() -> None:
    async def story() -> None:
        async with tenancy() as w:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-red"}}
            await w.kube.create(body, NAMESPACES)
            await w.put(tenant("red"))

            async def refused() -> Any:
                found = await w.kube.get(Tenant, "red", "default")
                return [c.message for c in found.status.conditions if c.status == "False"]

            assert "does not belong to this tenant" in (await w.until(refused))[0]
            await w.kube.delete(Tenant, "red", "default")
            assert await w.kube.find(NAMESPACES, "tenant-red") is not None

    run_virtual(story())
