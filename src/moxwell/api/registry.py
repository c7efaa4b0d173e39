"""All kinds and conversions that Moxwell serves and renders, as tuples."""

from collections.abc import Mapping
from typing import Any

from moxwell.api import cozystack, crd, gateway, ipam, kamaji, reference, upstream_fields
from moxwell.api.capi import (
    addons,
    bootstrap,
    controlplane,
    convert,
    core,
    machinesets,
    talos,
    v1beta1,
)
from moxwell.api.conversion import KindConversion
from moxwell.api.core import events, nodes, pods, resources, storage
from moxwell.api.crd import ConversionWebhook
from moxwell.api.field_errors import FieldError
from moxwell.api.infra import convert as infra
from moxwell.api.karpenter import capacity, nodeclaims, nodepools, proxmox, proxmox_templates
from moxwell.api.kinds import Object
from moxwell.api.unknown_fields import unknown_fields, unknown_in_schema

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
    *talos.KINDS,
    *controlplane.KINDS,
    *addons.KINDS,
    *ipam.KINDS,
    *kamaji.KINDS,
    *gateway.KINDS,
)
KARPENTER: tuple[type[Object], ...] = (
    *nodepools.KINDS,
    *nodeclaims.KINDS,
    *capacity.KINDS,
    *proxmox.KINDS,
    *proxmox_templates.KINDS,
)
OURS: tuple[type[Object], ...] = (*infra.KINDS, *cozystack.KINDS)
KINDS: tuple[type[Object], ...] = (*BUILTIN, *UPSTREAM, *KARPENTER, *OURS)
CONVERSIONS: tuple[KindConversion, ...] = (
    *infra.CONVERSIONS,
    *convert.CONVERSIONS,
    *controlplane.CONVERSIONS,
    *ipam.CONVERSIONS,
)


def find_conversion(group: str, kind: str) -> KindConversion | None:
    """Find the conversion of a kind, or None if the kind has one version."""
    return next((f for f in CONVERSIONS if (f.group, f.kind) == (group, kind)), None)


def field_errors(tree: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """The unknown fields of a manifest; none for kinds that Moxwell does not serve."""
    named = (str(tree.get("apiVersion")), str(tree.get("kind")))
    kinds = (*OURS, *KARPENTER, *UPSTREAM)
    found = next((k for k in kinds if (k.resource.api_version, k.resource.kind) == named), None)
    if found is None:
        return ()
    if found in UPSTREAM:
        return unknown_in_schema(upstream_fields.schema_of(found), tree)
    return unknown_fields(found, tree)


def make_crds(
    *, upstream: bool = True, webhook: ConversionWebhook | None = None
) -> tuple[dict[str, Any], ...]:
    """
    Build Moxwell's CRDs; with ``upstream`` also those of Cluster API, Kamaji and Karpenter, for
    lab and standalone.
    """
    return crd.crds((*OURS, *UPSTREAM, *KARPENTER) if upstream else OURS, webhook)


def make_karpenter_crds() -> tuple[dict[str, Any], ...]:
    """Build the CRDs of Karpenter and its Proxmox provider, for a cluster that is scaled."""
    return crd.crds(KARPENTER)


def render_crds(*, upstream: bool = False, webhook: ConversionWebhook | None = None) -> str:
    """Render the CRDs as YAML; ``moxwell render crds`` prints them."""
    return crd.render(make_crds(upstream=upstream, webhook=webhook))


def render_kinds() -> str:
    """Render the reference page of all kinds as Markdown."""
    return reference.page(OURS, (*UPSTREAM, *KARPENTER))
