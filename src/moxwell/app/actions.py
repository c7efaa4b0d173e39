"""What the dashboard may ask for beside the picture: plans and YAML. Nothing is changed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import yaml

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.machine.explain import HostRow
from moxwell.controllers.infra.wiring import Infra
from moxwell.controllers.upstream.tenants import Tenants
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key

Query = Mapping[str, Any]
Action = Callable[[Query], Awaitable[Any]]


def make(kube: Kube, infra: Infra, tenants: Tenants) -> dict[str, Action]:
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

    return {"yaml": as_yaml, "explain": explain}


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
