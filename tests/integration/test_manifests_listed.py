"""Manifests with a list of what was applied: what is taken out is deleted, also after a crash."""

from typing import Any

import pytest

from moxwell.api.kinds import Resource
from moxwell.app.embedded_api import open_store
from moxwell.kube.client import Kube
from moxwell.kube.manifests import CONFIG_MAPS, KindNotInstalled, apply_listed
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]
INVENTORY, MANAGER = ("kube-system", "moxwell-addons"), "moxwell-addons"
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
ROLE: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "addon"},
    "rules": [],
}


def config_map(name: str, **meta: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


UNKNOWN: Json = {"apiVersion": "cni.example/v1", "kind": "Net", "metadata": {"name": "n"}}


async def names(kube: Kube) -> set[str]:
    found = (await kube.list(CONFIG_MAPS, "default")).items
    return {o["metadata"]["name"] for o in found} - {"kube-root-ca.crt"}


def test_what_is_taken_out_is_deleted() -> None:
    async def story() -> None:
        store = await open_store(LoopClock())
        kube = Kube(store)

        async def apply(*objects: Json) -> None:
            await apply_listed(kube, objects, MANAGER, INVENTORY)

        await apply()
        assert await kube.find(CONFIG_MAPS, INVENTORY[1], INVENTORY[0]) is None
        await apply(config_map("a"), config_map("b", namespace="default"), ROLE)
        await apply(config_map("a"), config_map("b", namespace="default"), ROLE)
        assert await names(kube) == {"a", "b"}
        await apply(config_map("a"))
        assert await names(kube) == {"a"}
        assert await kube.find(ROLES, "addon") is None
        with pytest.raises(KindNotInstalled):  # as a crash in the middle
            await apply(config_map("c"), UNKNOWN)
        assert await names(kube) == {"a", "c"}
        await kube.delete(CONFIG_MAPS, "a", "default")
        await kube.create(config_map("a", namespace="default"), CONFIG_MAPS)  # the user's own now
        await apply()
        assert await names(kube) == {"a"}
        await store.stop()

    run_virtual(story())
