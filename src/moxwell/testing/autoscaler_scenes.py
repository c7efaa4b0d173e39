"""
Scenes of the autoscaler over Proxmox: nodes are created for pods and removed for every reason.

A :class:`ScaledEnvironment` is a Kubernetes API with Cluster API, simulated regions, guests that
join, and a running autoscaler. An upstream control plane on real time and the embedded one on
virtual time run the same scenes. They share one cluster; each uses node pools of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.bootstrap import join_tokens
from moxwell.kube.client import Kube
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, REGION
from moxwell.testing.autoscaler_world import DEPLOYMENTS, deployment
from moxwell.testing.machine_stories import NODES, StoryEnvironment
from moxwell.testing.node_claims import BUDGETS, EVENTS, PODS, pool_object
from moxwell.testing.region_contents import contents_diff

Json = dict[str, Any]
SMALL, LARGE = "c1.2VCPU-8GB", "c1.4VCPU-8GB"
ALL_AT_ONCE = [{"nodes": "100%"}]
AT_ONCE = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 1}
    for key in ("unreachable", "not-ready")
]  # fmt: skip
POD_CPU = "1200m"  # two fit the large size; the small one is cheaper for one


@dataclass
class ScaledEnvironment:
    """What a scene needs; ``reasons`` counts disrupted node claims by Karpenter's reason."""

    stage: StoryEnvironment
    reasons: Callable[[], Mapping[str, int]]
    expire_after: str = "10m"
    seen: dict[str, Any] = field(default_factory=dict)  # what the scenes observed, for a golden

    @property
    def kube(self) -> Kube:
        return self.stage.kube

    async def until(self, what: str, test: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await self.stage.until(what, test)
        except AssertionError as error:
            error.add_note(await self._state())
            raise

    async def _state(self) -> str:
        lines = [f"reasons: {dict(self.reasons())}"]
        for claim in (await self.kube.list(NodeClaim)).items:
            found = [f"{c.type}={c.status} {c.reason} {c.message}" for c in claim.status.conditions]
            lines.append(f"{claim.name}: {claim.status.node_name} {found}")
        for event in (await self.kube.list(EVENTS)).items[-25:]:
            lines.append(f"{event['reason']}: {event.get('message', '')}")
        return "\n".join(lines)

    # ---- what a user does

    async def pool(self, name: str, capacity: str = "on-demand", **spec: Any) -> None:
        only = {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity]}
        template = {"requirements": [only], **spec.pop("template", {})}
        body = pool_object(name, template=template, **spec)
        if "replicas" not in spec:
            body["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": ALL_AT_ONCE}
        await self.kube.create(body, NodePool.resource)

    async def change(self, pool: str, spec: Json) -> None:
        await self.kube.merge(NodePool, pool, {"spec": spec})

    async def relabel(self, pool: str, value: str) -> None:
        """Change the template of a pool, so that its nodes drift."""
        await self.change(pool, {"template": {"metadata": {"labels": {"round": value}}}})

    async def deploy(self, name: str, replicas: int, pool: str, **pod: Any) -> None:
        given = {"nodeSelector": {NODE_POOL: pool}, "tolerations": AT_ONCE} | pod
        body = deployment(name, replicas, cpu=POD_CPU, **given)
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        await self.kube.create(body, DEPLOYMENTS)

    async def scale(self, name: str, replicas: int) -> None:
        await self.kube.merge(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, "default")

    # ---- what can be observed

    async def claims(self, pool: str = "") -> tuple[NodeClaim, ...]:
        found = (await self.kube.list(NodeClaim)).items
        return tuple(c for c in found if pool in ("", c.metadata.labels.get(NODE_POOL)))

    async def uids(self, pool: str) -> set[str]:
        return {c.uid for c in await self.claims(pool)}

    async def ready(self, pool: str, count: int) -> bool:
        """Whether the pool has so many claims, all with an initialized node."""
        found = await self.claims(pool)
        return len(found) == count and all(is_true(c, "Initialized") for c in found)

    async def running(self, app: str, count: int) -> None:
        async def test() -> bool:
            found = await self.pods(app)
            good = [p for p in found if (p.get("status") or {}).get("phase") == "Running"]
            return len(good) == len(found) == count

        await self.until(f"{count} pods of {app} run", test)

    async def pods(self, app: str) -> list[Json]:
        """The pods of a Deployment that are not being deleted."""
        found = (await self.kube.list(PODS, "default")).items
        mine = [p for p in found if p["metadata"].get("labels", {}).get("app") == app]
        return [p for p in mine if not p["metadata"].get("deletionTimestamp")]

    async def claim_of(self, app: str) -> NodeClaim:
        """The claim of the node that runs the only pod of a Deployment."""
        (pod,) = await self.pods(app)
        found = {c.status.node_name: c for c in await self.claims()}
        return found[pod["spec"]["nodeName"]]

    async def moved(self, app: str, before: set[str]) -> NodeClaim:
        """Wait until the only pod of a Deployment runs on a node of another claim."""

        async def test() -> NodeClaim | None:
            found = {c.status.node_name: c for c in await self.claims() if c.uid not in before}
            pods = [p for p in await self.pods(app) if p["status"].get("phase") == "Running"]
            return next((found[n] for p in pods if (n := p["spec"]["nodeName"]) in found), None)

        made: NodeClaim = await self.until(f"{app} runs elsewhere", test)
        return made

    async def has_event(self, reason: str, text: str) -> bool:
        rows = (await self.kube.list(EVENTS)).items
        return any(e["reason"] == reason and text in e.get("message", "") for e in rows)

    async def gone(self, uids: set[str]) -> None:
        async def test() -> bool:
            return not uids & {c.uid for c in await self.claims()}

        await self.until("the node claims are gone", test)

    def counted(self, reason: str) -> int:
        return self.reasons().get(reason, 0)


def is_true(claim: NodeClaim, type_: str) -> bool:
    return any(c.type == type_ and c.status == "True" for c in claim.status.conditions)


def types(claims: tuple[NodeClaim, ...]) -> list[str]:
    """The instance type of each claim, if it is decided."""
    return sorted(c.metadata.labels.get(INSTANCE_TYPE, "") for c in claims)


def regions(claims: tuple[NodeClaim, ...]) -> list[str]:
    """The region of each claim, if it is decided."""
    return sorted(c.metadata.labels.get(REGION, "") for c in claims)


# ---------------------------------------------------------------------- the scenes


async def scales_out_over_two_regions(env: ScaledEnvironment) -> None:
    """Pods that must spread over regions get one node in each."""
    for name in ("web", "more"):
        spread = {
            "maxSkew": 1,
            "topologyKey": REGION,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": name}},
        }
        await env.deploy(name, 2, "main", topologySpreadConstraints=[spread])
    await env.pool("main")  # after the pods, so that one decision is about all of them
    for name in ("web", "more"):
        await env.running(name, 2)

    async def spread_out() -> bool:
        found = await env.claims("main")
        return regions(found) == ["north", "south"] and types(found) == [LARGE, LARGE]

    await env.until("a node in each region", spread_out)
    env.seen["scaled out"] = types(await env.claims("main"))
    assert all(len(found) == 1 for found in env.stage.vmids().values())


async def budget_and_pdb_keep_drifted_nodes(env: ScaledEnvironment) -> None:
    """Neither a budget of zero nor a PodDisruptionBudget lets drifted nodes be replaced."""
    before = await env.uids("main")
    await env.change("main", {"disruption": {"budgets": [{"nodes": "0"}]}})
    await env.relabel("main", "two")

    async def drifted() -> bool:
        return all(is_true(c, "Drifted") for c in await env.claims("main"))

    await env.until("the nodes are drifted", drifted)
    blocked = "due to blocking budget"
    await env.until("the budget blocks", lambda: env.has_event("DisruptionBlocked", blocked))
    meta = {"name": "web", "namespace": "default"}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}
    pdb = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
    await env.kube.create(pdb | {"spec": spec}, BUDGETS)
    await env.change("main", {"disruption": {"budgets": ALL_AT_ONCE}})
    await env.until("the PDB blocks", lambda: env.has_event("DisruptionBlocked", "default/web"))
    await asyncio.sleep(env.stage.still_seconds)
    assert await env.uids("main") == before
    assert env.counted("drifted") == 0


async def drifted_nodes_are_replaced(env: ScaledEnvironment) -> None:
    """Without the PodDisruptionBudget the drifted nodes are replaced; no pod is lost."""
    before = await env.uids("main")
    await env.kube.delete(BUDGETS, "web", "default")
    await env.gone(before)
    await env.running("web", 2)
    found = await env.claims("main")
    assert {c.metadata.labels.get("round") for c in found} == {"two"}
    env.seen["drifted"] = types(found)


async def underutilized_nodes_become_smaller(env: ScaledEnvironment) -> None:
    """When half of the pods are gone, each node is replaced by a cheaper one."""
    await env.kube.delete(DEPLOYMENTS, "more", "default")

    async def smaller() -> bool:
        found = await env.claims("main")
        return types(found) == [SMALL, SMALL] and await env.ready("main", 2)

    await env.until("the nodes are smaller", smaller)
    await env.running("web", 2)
    env.seen["underutilized"] = types(await env.claims("main"))
    assert env.counted("underutilized") >= 1


async def empty_nodes_end(env: ScaledEnvironment) -> None:
    """Without pods there are no nodes."""
    before = await env.uids("main")
    await env.scale("web", 0)
    await env.gone(before)
    assert env.counted("empty") >= 1
    await env.kube.delete(DEPLOYMENTS, "web", "default")


async def expired_nodes_are_replaced(env: ScaledEnvironment) -> None:
    """A node ends ``expireAfter`` after its creation, and its pod gets another one."""
    await env.pool("short", template={"expireAfter": env.expire_after})
    await env.deploy("brief", 1, "short")
    await env.running("brief", 1)
    before = await env.uids("short")
    await env.gone(before)
    env.seen["expired"] = types((await env.moved("brief", before),))
    assert env.counted("expired") >= 1
    await _forget(env, "brief", "short")


async def drifted_nodes_of_a_static_pool_are_replaced(env: ScaledEnvironment) -> None:
    """A pool with replicas keeps their number and follows its template."""
    await env.pool("fixed", replicas=2)
    await env.until("two nodes", lambda: env.ready("fixed", 2))
    before = await env.uids("fixed")
    await env.relabel("fixed", "two")
    await env.gone(before)
    await env.until("two new nodes", lambda: env.ready("fixed", 2))
    found = await env.claims("fixed")
    assert {c.metadata.labels.get("round") for c in found} == {"two"}
    env.seen["static drift"] = types(found)
    await _forget(env, "", "fixed")


async def lost_spot_guest_is_replaced(env: ScaledEnvironment) -> None:
    """Somebody takes the room of a spot guest back: its claim ends, its pod gets another one."""
    await env.pool("spot", "spot")
    await env.deploy("batch", 1, "spot")
    await env.running("batch", 1)
    claim = await env.claim_of("batch")
    region, vmid = place(claim)
    chaos.perform(env.stage.engine.runtimes[region], "delete-guest", {"vmid": vmid})
    await env.gone({claim.uid})
    env.seen["spot loss"] = types((await env.moved("batch", {claim.uid}),))
    await _forget(env, "batch", "spot")


async def full_storage_falls_through(env: ScaledEnvironment) -> None:
    """Clones of a region fail for lack of room: an offering of the other region gets the pod."""
    faults = env.stage.engine.faults
    for rules in faults.values():
        text = "clone failed: no space left on device"
        rules.add(Fault("task-fail", task="qmclone", text=text))
    await env.deploy("late", 1, "main")

    async def failed() -> bool:
        return env.counted("insufficient_capacity") >= 1

    await env.until("a claim ends for lack of room", failed)
    full = next(name for name, rules in faults.items() if any(f.hits for f in rules.listed()))
    for name in faults.keys() - {full}:
        faults[name].remove()
    await env.running("late", 1)
    claim = await env.claim_of("late")
    assert place(claim)[0] != full
    env.seen["capacity"] = types((claim,))
    faults[full].remove()


async def lost_host_is_left(env: ScaledEnvironment) -> None:
    """A host goes down: its pod runs elsewhere; when it returns, its guest is deleted."""
    claim = await env.claim_of("late")
    region, vmid = place(claim)
    runtime = env.stage.engine.runtimes[region]
    host = runtime.region.guests[vmid].node
    chaos.perform(runtime, "host-down", {"node": host})
    env.seen["host loss"] = types((await env.moved("late", {claim.uid}),))
    chaos.perform(runtime, "host-up", {"node": host})
    await env.gone({claim.uid})
    assert vmid not in runtime.region.guests
    await env.kube.delete(DEPLOYMENTS, "late", "default")


async def nothing_is_left(env: ScaledEnvironment) -> None:
    """Without node pools neither Kubernetes nor Proxmox has anything of the autoscaler."""
    for pool in (await env.kube.list(NodePool)).items:
        await env.kube.delete(NodePool, pool.metadata.name)
    kinds: tuple[Any, ...] = (NodePool, NodeClaim, Machine, NODES)

    async def gone() -> bool:
        tokens = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
        return not tokens.items and not any([(await env.kube.list(k)).items for k in kinds])

    await env.until("nothing is left in Kubernetes", gone)
    after = env.stage.contents()
    for region, before in env.stage.before.items():
        assert contents_diff(before, after[region]) == {}, region


def place(claim: NodeClaim) -> tuple[str, int]:
    """Region and VMID of the guest of a claim."""
    region, _, vmid = claim.status.provider_id.removeprefix("proxmox://").partition("/")
    return region, int(vmid)


async def _forget(env: ScaledEnvironment, app: str, pool: str) -> None:
    if app:
        await env.kube.delete(DEPLOYMENTS, app, "default")
    await env.kube.delete(NodePool, pool)


async def _one_after_the_other(env: ScaledEnvironment) -> None:
    await budget_and_pdb_keep_drifted_nodes(env)
    await drifted_nodes_are_replaced(env)
    await underutilized_nodes_become_smaller(env)
    await empty_nodes_end(env)


async def run_scenes(env: ScaledEnvironment) -> None:
    """All scenes; those with pools of their own run at the same time."""
    await scales_out_over_two_regions(env)
    async with asyncio.TaskGroup() as group:
        group.create_task(_one_after_the_other(env))
        group.create_task(expired_nodes_are_replaced(env))
        group.create_task(drifted_nodes_of_a_static_pool_are_replaced(env))
        group.create_task(lost_spot_guest_is_replaced(env))
    await full_storage_falls_through(env)
    await lost_host_is_left(env)
    env.seen["reasons"] = dict(sorted(env.reasons().items()))
    await nothing_is_left(env)
