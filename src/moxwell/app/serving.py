"""
An embedded API with Moxwell's kinds: the store, its hooks, and the CRDs it starts with.

Conversions and admission run in the process itself, through the same pure functions that the
webhooks of operator mode call.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from moxwell.api import registry
from moxwell.api.infra import admit
from moxwell.api.kinds import Object, Resource
from moxwell.clock import Clock
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.store.access.authority import Authority
from moxwell.store.hooks import Convert, Hooks, Review
from moxwell.store.server import Store

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)


def make_hooks() -> Hooks:
    """Conversions of every kind that has several versions, and our admission rules."""
    return Hooks(admit=_admit, converters=_converters())


def _converters() -> Mapping[str, Convert]:
    plurals = {(k.resource.group, k.resource.kind): k.resource for k in registry.KINDS}
    found: dict[str, Convert] = {}
    for family in registry.FAMILIES:

        def convert(obj: dict[str, Any], wanted: str, family: Any = family) -> dict[str, Any]:
            made: dict[str, Any] = family.convert(obj, wanted.rpartition("/")[2])
            return made

        found[plurals[family.group, family.kind].group_resource] = convert
    return found


def _admit(review: Review) -> Sequence[str]:
    if review.object is None or review.subresource:
        return ()
    kind = _hub(review.group, review.kind)
    if kind is None:
        return ()
    new, old = _typed(kind, review.object), _typed(kind, review.old)
    if new is not None and (said := admit.refusals(new, old, dry_run=review.dry_run)):
        raise Invalid("; ".join(said))
    return ()


def _hub(group: str, name: str) -> type[Object] | None:
    stored = (k for k in registry.OURS if k.declared.storage)
    return next((k for k in stored if (k.resource.group, k.resource.kind) == (group, name)), None)


def _typed(kind: type[Object], tree: dict[str, Any] | None) -> Object | None:
    """The object in the hub's form, whatever version the user wrote."""
    if tree is None:
        return None
    family = registry.find_family(kind.resource.group, kind.resource.kind)
    hub = family.convert(tree, kind.resource.version) if family else tree
    return msgspec.convert(hub, kind, strict=False)


async def open_store(
    clock: Clock, path: Path | None = None, authority: Authority | None = None
) -> Store:
    """An embedded API that serves our kinds; ``path=None`` keeps it in memory."""
    store = Store(
        path=path,
        clock=clock,
        hooks=make_hooks(),
        root_ca=authority.certificate.decode() if authority else "",
        token_key=authority.token_key if authority else None,
    )
    await store.start()
    await install_crds(Kube(store))
    return store


async def install_crds(kube: Kube) -> None:
    """Make or update every CRD; harmless to repeat."""
    for crd in registry.make_crds(upstream=True):
        await kube.apply(crd, CRDS, force=True)
