"""
Requests of the dashboard and the CLI to the daemon that change nothing: plans, YAML, explanations.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from moxwell.api import conversion
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.collect.plan import Orphan
from moxwell.controllers.infra.machine.explain import HostExplanation
from moxwell.controllers.infra.setup import Infra
from moxwell.controllers.infra.templates import template_of
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.plan.manifest_plan import ManifestPlanner
from moxwell.preflight.checks import check_region
from moxwell.preflight.outcome import CheckLevel, RegionCheck
from moxwell.preflight.service import Preflight
from moxwell.pve.errors import CredentialsRefused
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.key import Key
from moxwell.scheduling.templates import versions_of
from moxwell.web.findings import finding, of_check

Query = Mapping[str, Any]
Action = Callable[[Query], Awaitable[Any]]
ClusterCheck = Callable[[Kubernetes], Awaitable[tuple[RegionCheck, ...]]]


def make(
    kube: Kube,
    infra: Infra,
    regions: Regions,
    planner: ManifestPlanner | None = None,
    *,
    clock: Clock,
    preflight: Preflight | None = None,
    check_cluster: ClusterCheck | None = None,
) -> dict[str, Action]:
    """The actions by name; without a planner there are no plans and no explained clusters."""

    async def as_yaml(query: Query) -> Any:
        key = _key(query)
        found = await kube.get(ProxmoxMachine.resource, key.name, key.namespace)
        found.get("metadata", {}).pop("managedFields", None)
        return {"text": yaml.safe_dump(found, sort_keys=False)}

    async def explain(query: Query) -> Any:
        if query.get("kind") == "cluster":
            found = await _planner(planner).plan_cluster(_key(query))
            return {**msgspec.to_builtins(found), "text": str(found)}
        rows = await infra.explainer.explain(_key(query))
        return {"rows": [_row(r) for r in rows]}

    async def plan(query: Query) -> Any:
        found = await _planner(planner).plan(_documents(query), delete=bool(query.get("delete")))
        parts = [{**msgspec.to_builtins(part), "text": str(part)} for part in found.parts]
        return {"parts": parts}

    checks = preflight or Preflight(regions, clock)
    return {
        "yaml": as_yaml,
        "explain": explain,
        "plan": plan,
        **_checks(infra, regions, checks, check_cluster),
        **_region_actions(regions, clock),
    }


def _checks(
    infra: Infra, regions: Regions, preflight: Preflight, check_cluster: ClusterCheck | None
) -> dict[str, Action]:
    """The actions that check regions, and a cluster that may not exist yet."""

    async def health(query: Query) -> Any:
        rows = [row for region in regions.values() for row in await _health(region, preflight)]
        return {"rows": rows + _orphans(infra.collector.guests)}

    async def check(query: Query) -> Any:
        if check_cluster is None:
            raise Invalid("this daemon does not check clusters")
        documents = _documents(query)
        if len(documents) != 1:
            raise Invalid("one manifest of a Kubernetes object is expected")
        found = await check_cluster(conversion.decode_object(Kubernetes, documents[0]))
        return {"rows": [msgspec.to_builtins(row) for row in found]}

    return {"health": health, "preflight": check}


def _region_actions(regions: Regions, clock: Clock) -> dict[str, Action]:
    async def states(query: Query) -> Any:
        for region in regions.values():  # whoever asks again soon gets an answer of that moment
            region.inventory.poll_frequently()
        return {"rows": [_region(region, clock) for region in regions.values()]}

    async def versions(query: Query) -> Any:
        return {"rows": _versions(regions)}

    return {"regions": states, "versions": versions}


def _planner(planner: ManifestPlanner | None) -> ManifestPlanner:
    if planner is None:
        raise Invalid("this daemon has no planner")
    return planner


def _key(query: Query) -> Key:
    namespace, _, name = str(query.get("key", "")).partition("/")
    if not name:
        raise Invalid("the parameter key=NAMESPACE/NAME is missing")
    return Key(namespace, name)


def _documents(query: Query) -> list[dict[str, Any]]:
    """The body of a plan request: a JSON list of manifests."""
    try:
        return msgspec.json.decode(query.get("body") or b"[]", type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise Invalid(f"the manifests are not a JSON list of objects: {error}") from error


async def _health(region: Region, preflight: Preflight) -> list[dict[str, str]]:
    """The checks of a region; those that pass are one line."""
    name, known = region.name, region.inventory.health
    if not known.reachable and known.reason not in (
        "",
        CredentialsRefused.reason,
    ):  # "": no poll yet
        return [_unreachable(name, known.error)]
    facts = await preflight.facts(region, fresh=True)
    checks = check_region(facts, preflight.needs(name))
    rows = [
        of_check(check, f"region {name}: ")
        for check in checks
        if check.level is not CheckLevel.PASS
    ]
    if facts.error is not None:
        return rows
    return [finding("ok", f"region {name} answers, Proxmox VE {facts.version}"), *rows]


def _unreachable(name: str, error: str) -> dict[str, str]:
    do = "check its address, the network and the certificate in the configuration"
    return finding("wrong", f"region {name} does not answer: {error}", do)


def _orphans(guests: Sequence[Orphan]) -> list[dict[str, str]]:
    """Guests with an owner mark but without a machine; they are never deleted automatically."""
    do = "restore its ProxmoxMachine, or delete the guest: qm destroy VMID --purge on its host"
    return [
        finding(
            "remark", f"region {g.region}: guest {g.name} on {g.host} has no ProxmoxMachine", do
        )
        for g in guests
    ]


def _region(region: Region, clock: Clock) -> dict[str, Any]:
    """Whether a region answers, and since when it does not."""
    known = region.inventory.health
    lost = known is not None and not known.reachable
    since = clock.now() - timedelta(seconds=clock.monotonic() - known.since) if known else None
    return {
        "name": region.name,
        "reachable": not lost,
        "since": f"{since:%Y-%m-%d %H:%M:%S} UTC" if lost and since else "",
        "error": known.error if lost and known else "",
    }


def _versions(regions: Regions) -> list[dict[str, Any]]:
    """The Kubernetes versions of all templates, the newest first."""
    found: dict[tuple[int, ...], list[tuple[str, str]]] = {}
    for region in regions.values():
        for guest in region.inventory.guests.values():
            if guest.template:
                for version in versions_of(template_of(region.name, guest)):
                    found.setdefault(version, []).append((region.name, guest.name))
    return [
        {
            "version": "v" + ".".join(map(str, version)),
            "regions": sorted({region for region, _ in at}),
            "templates": sorted({name for _, name in at}),
        }
        for version, at in sorted(found.items(), reverse=True)
    ]


def _row(row: HostExplanation) -> dict[str, Any]:
    verdict = "Current host" if row.here else "Would be chosen" if row.chosen else "Fits"
    others = "1 other replica" if row.replicas == 1 else f"{row.replicas or 'no'} other replicas"
    because = f"{others} of its group, {row.load * 100:.0f} % of CPU and memory"
    return {
        "region": row.region,
        "host": row.host,
        "fits": row.fits,
        "chosen": row.here,
        "verdict": verdict if row.fits or row.here else "Does not fit",
        "because": "; ".join(row.why_not) or because,
        "load": row.load,
    }
