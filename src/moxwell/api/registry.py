"""
All kinds and all conversions, in two tuples: what is served, rendered and converted.

The order is that of the packages; nothing registers itself. ``render_crds`` is what
``moxwell render crds`` prints.
"""

from typing import Any

from moxwell.api import cozystack, crd, ipam, kamaji, reference
from moxwell.api.capi import bootstrap, controlplane, convert, core, machinesets, v1beta1
from moxwell.api.conversion import KindConversion
from moxwell.api.core import events, nodes, pods, resources, storage
from moxwell.api.crd import ConversionWebhook
from moxwell.api.infra import convert as infra
from moxwell.api.kinds import Object

BUILTIN: tuple[type[Object], ...] = (
    *resources.KINDS,
    *events.KINDS,
    *nodes.KINDS,
    *pods.KINDS,
    *storage.KINDS,
)
UPSTREAM: tuple[type[Object], ...] = (
    *core.KINDS,
    *machinesets.KINDS,
    *v1beta1.KINDS,
    *bootstrap.KINDS,
    *controlplane.KINDS,
    *ipam.KINDS,
    *kamaji.KINDS,
)
OURS: tuple[type[Object], ...] = (*infra.KINDS, *cozystack.KINDS)
KINDS: tuple[type[Object], ...] = (*BUILTIN, *UPSTREAM, *OURS)
CONVERSIONS: tuple[KindConversion, ...] = (
    *infra.CONVERSIONS,
    *convert.CONVERSIONS,
    *controlplane.CONVERSIONS,
    *ipam.CONVERSIONS,
)


def find_conversion(group: str, kind: str) -> KindConversion | None:
    """The conversions of a kind, if it has several versions."""
    return next((f for f in CONVERSIONS if (f.group, f.kind) == (group, kind)), None)


def make_crds(
    *, upstream: bool = True, webhook: ConversionWebhook | None = None
) -> tuple[dict[str, Any], ...]:
    """Our CRDs; with ``upstream`` those of Cluster API and Kamaji too, for lab and standalone."""
    return crd.crds((*OURS, *UPSTREAM) if upstream else OURS, webhook)


def render_crds(*, upstream: bool = False, webhook: ConversionWebhook | None = None) -> str:
    """The same as YAML."""
    return crd.render(make_crds(upstream=upstream, webhook=webhook))


def render_kinds() -> str:
    """The reference page of all kinds, as Markdown."""
    return reference.page(OURS, UPSTREAM)
