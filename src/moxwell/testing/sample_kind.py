"""A sample kind for tests of the runtime: Thing, with a size and conditions."""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from moxwell.api.conditions import Condition
from moxwell.api.kinds import Object, Resource, kind
from moxwell.api.meta import Value


class ThingSpec(Value, frozen=True, kw_only=True):
    size: int = 1
    region: str = ""
    provider_id: str = field(name="providerID", default="")


class ThingStatus(Value, frozen=True, kw_only=True):
    ready: bool = False
    size: int | None = None
    conditions: tuple[Condition, ...] = ()


@kind(group="test.moxwell.dev", version="v1", plural="things", status=True)
class Thing(Object, frozen=True, kw_only=True):
    spec: ThingSpec = field(default_factory=ThingSpec)
    status: ThingStatus = field(default_factory=ThingStatus)


THINGS = Resource("test.moxwell.dev", "v1", "things", "Thing")


def thing(
    name: str, *, namespace: str = "ns", meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Build a Thing as a user would apply it."""
    return {
        "apiVersion": "test.moxwell.dev/v1",
        "kind": "Thing",
        "metadata": {"name": name, "namespace": namespace, **(meta or {})},
        "spec": spec,
    }
