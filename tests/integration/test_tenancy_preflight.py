"""The condition ``PreflightPassed`` of a tenant cluster."""

from typing import Any

from moxwell.api.cozystack import Kubernetes
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import SPACE, TenantWorld, app, tenancy


async def condition(w: TenantWorld, status: str) -> Any:
    found = await w.kube.find(Kubernetes, "c1", SPACE)
    conditions = {c.type: c for c in found.status.conditions} if found else {}
    passed = conditions.get("PreflightPassed")
    return passed if passed is not None and passed.status == status else None


def test_a_cluster_says_what_its_regions_lack_until_it_is_mended() -> None:
    async def story() -> None:
        async with tenancy() as w:
            groups = [{"name": "g", "replicas": 1, "regions": ["north"], "bridge": "vmbr9"}]
            await w.put(app("c1", nodeGroups=groups))
            failed = await w.until(lambda: condition(w, "False"))
            assert failed.reason == "ChecksFailed"
            assert "has no bridge vmbr9; create vmbr9 on" in failed.message
            for host in w.two_regions.engine.runtimes["north"].region.hosts.values():
                host.bridges["vmbr9"] = dict(host.bridges["vmbr0"])
            passed = await w.until(lambda: condition(w, "True"))
            assert (passed.reason, passed.message) == ("ChecksPassed", "")
            await w.ready("c1", 1)

    run_virtual(story())
