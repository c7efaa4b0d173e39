"""What the dashboard may ask for beside the picture: plans and YAML. Nothing is changed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import yaml

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import SystemClock
from moxwell.controllers.infra.collect.plan import Orphan
from moxwell.controllers.infra.machine.explain import HostRow
from moxwell.controllers.infra.setup import Infra
from moxwell.errors import Invalid, MoxwellError, Unreachable
from moxwell.kube.client import Kube
from moxwell.pve import preflight
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.key import Key
from moxwell.verify.service import verifying

Query = Mapping[str, Any]
Action = Callable[[Query], Awaitable[Any]]


def make(kube: Kube, infra: Infra, regions: Regions) -> dict[str, Action]:
    """The actions by name."""

    async def as_yaml(query: Query) -> Any:
        namespace, _, name = str(query.get("key", "")).partition("/")
        if not name:
            raise Invalid("say which machine: key=NAMESPACE/NAME")
        found = await kube.get(ProxmoxMachine.resource, name, namespace)
        found.get("metadata", {}).pop("managedFields", None)
        return {"text": yaml.safe_dump(found, sort_keys=False)}

    async def explain(query: Query) -> Any:
        namespace, _, name = str(query.get("key", "")).partition("/")
        rows = await infra.explainer.explain(Key(namespace, name))
        return {"rows": [_row(r) for r in rows]}

    async def health(query: Query) -> Any:
        rows = [row for region in regions.values() for row in await _health(region)]
        return {"rows": rows + _orphans(infra.collector.guests)}

    verify = verifying(kube, regions, SystemClock())
    return {"yaml": as_yaml, "explain": explain, "health": health, "verify": verify}


async def _health(region: Region) -> list[dict[str, str]]:
    """Whether a region answers, lets us do what we must, and has something to clone."""
    name, known = region.name, region.inventory.health
    if known is not None and not known.reachable:
        return [_silent(name, known.error)]
    try:
        report = await preflight.check(region.pve)
        version = await region.pve.cluster.version()
    except Unreachable as error:  # before anybody else has noticed
        return [_silent(name, str(error))]
    except MoxwellError as error:
        return [_finding("wrong", f"region {name}: {error}", "check the token's rights")]
    rows = [_finding("ok", f"region {name} answers, Proxmox VE {version.version}")]
    if report.missing:
        lacks = ", ".join(sorted({n.privilege for n in report.missing}))
        do = "give the token the documented role: see docs/proxmox-client.md"
        rows.append(_finding("wrong", f"region {name}: the token lacks {lacks}", do))
    offline = sorted(h.name for h in region.inventory.hosts.values() if not h.online)
    if offline:
        text = f"region {name}: hosts {', '.join(offline)} do not answer"
        rows.append(_finding("remark", text, "machines there are kept until they answer"))
    if not region.inventory.view.templates:
        do = "make a template with containerd, kubelet and kubeadm, tagged k8s-VERSION"
        rows.append(_finding("wrong", f"region {name} has no template to clone", do))
    return rows


def _silent(name: str, error: str) -> dict[str, str]:
    do = "check its address, the network and the certificate in the configuration"
    return _finding("wrong", f"region {name} does not answer: {error}", do)


def _orphans(guests: Sequence[Orphan]) -> list[dict[str, str]]:
    """Guests with our mark that nobody owns; they are never removed without a person."""
    do = "bring its ProxmoxMachine back, or remove it: qm destroy VMID --purge on its host"
    return [
        _finding("remark", f"region {g.region}: guest {g.name} on {g.host} has lost its owner", do)
        for g in guests
    ]


def _finding(level: str, what: str, do: str = "") -> dict[str, str]:
    return {"level": level, "what": what, "do": do}


def _row(row: HostRow) -> dict[str, Any]:
    verdict = "Is here" if row.here else "Would be chosen" if row.chosen else "Fits"
    because = f"{row.replicas} of its group there, {row.load:.0%} promised"
    return {
        "region": row.region,
        "host": row.host,
        "fits": row.fits,
        "chosen": row.here,
        "verdict": verdict if row.fits or row.here else "Does not fit",
        "because": "; ".join(row.why_not) or because,
        "load": row.load,
    }
