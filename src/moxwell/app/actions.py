"""What the dashboard may ask for beside the picture: plans and YAML. Nothing is changed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import yaml

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.wiring import Infra
from moxwell.controllers.upstream.tenants import Tenants
from moxwell.errors import Invalid
from moxwell.kube.client import Kube

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

    return {"yaml": as_yaml}
