"""
An embedded API with Moxwell's kinds: the store, its hooks, and the CRDs it starts with.

Conversions and admission run in the process itself, through the same pure functions that the
webhooks of operator mode call.
"""

from collections.abc import Sequence
from pathlib import Path

from moxwell.api import registry
from moxwell.api.kinds import Resource
from moxwell.app import admission
from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth.ca import Authority
from moxwell.embedded.apiserver.hooks import Hooks, Review
from moxwell.embedded.apiserver.server import Store
from moxwell.kube.client import Kube

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)


def make_hooks() -> Hooks:
    """Conversions of every kind that has several versions, and our admission rules."""
    plurals = {(k.resource.group, k.resource.kind): k.resource for k in registry.KINDS}
    names = [plurals[f.group, f.kind].group_resource for f in registry.FAMILIES]
    return Hooks(admit=_admit, converters=dict.fromkeys(names, admission.convert))


def _admit(review: Review) -> Sequence[str]:
    if not review.subresource:
        admission.refuse(
            review.group, review.kind, review.object, review.old, dry_run=review.dry_run
        )
    return ()


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
