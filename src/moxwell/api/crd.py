"""
Renders CustomResourceDefinitions from kind declarations, as JSON objects or YAML.

A CRD with several served versions refers to the conversion webhook if one is given. The embedded
API server converts in its own process and needs none; the strategy is then None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from moxwell.api import upstream_fields
from moxwell.api.kinds import Column, Kind, Object
from moxwell.errors import Bug

JsonObject = dict[str, Any]
Kinds = Iterable[type[Object]]

# Kubernetes accepts CRDs of its protected groups only with a link to their approval.
APPROVED = "api-approved.kubernetes.io"
APPROVAL = "https://github.com/kubernetes-sigs/gateway-api/pull/891"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionWebhook:
    """The address of the conversion webhook: a Service or a URL."""

    service: str = ""
    namespace: str = ""
    port: int = 443
    path: str = "/convert"
    url: str = ""
    ca: str = ""  # base64 of PEM
    annotations: Mapping[str, str] | None = None  # for example cert-manager's CA injection


def crds(kinds: Kinds, webhook: ConversionWebhook | None = None) -> tuple[JsonObject, ...]:
    """Render one CRD per kind that is not built in, ordered by name."""
    families: dict[str, list[type[Object]]] = {}
    for kind in kinds:
        if not kind.declared.builtin:
            families.setdefault(kind.resource.group_resource, []).append(kind)
    return tuple(crd(families[name], webhook) for name in sorted(families))


def crd(versions: Sequence[type[Object]], webhook: ConversionWebhook | None = None) -> JsonObject:
    """Render the CRD of one kind from its versions."""
    stored = _stored(versions)
    resource, declared = stored.resource, stored.declared
    several = sum(version.declared.served for version in versions) > 1
    metadata: JsonObject = {"name": resource.group_resource}
    if declared.labels:
        metadata["labels"] = dict(declared.labels)
    annotations = {APPROVED: APPROVAL} if resource.group.endswith(".k8s.io") else {}
    if several and webhook and webhook.annotations:
        annotations |= webhook.annotations
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": resource.group,
            "names": _names(declared),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "conversion": _conversion(webhook) if several and webhook else {"strategy": "None"},
            "versions": [_version(version) for version in versions],
        },
    }


def render(trees: Iterable[Mapping[str, Any]]) -> str:
    """Render YAML documents in a stable order without anchors."""
    return yaml.dump_all(trees, Dumper=_Plain, sort_keys=False, width=100, explicit_start=True)


class _Plain(yaml.CSafeDumper):  # part of every PyYAML wheel and ten times as fast as SafeDumper
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _stored(versions: Sequence[type[Object]]) -> type[Object]:
    stored = [version for version in versions if version.declared.storage]
    if len(stored) != 1:
        names = [f"{v.resource.kind} {v.resource.version}" for v in versions]
        raise Bug(f"exactly one version is stored, of {names} it is {len(stored)}")
    return stored[0]


def _names(declared: Kind) -> JsonObject:
    resource = declared.resource
    names: JsonObject = {
        "kind": resource.kind,
        "listKind": declared.list_kind,
        "plural": resource.plural,
        "singular": declared.singular,
    }
    if declared.short:
        names["shortNames"] = list(declared.short)
    if declared.categories:
        names["categories"] = list(declared.categories)
    return names


def _version(kind: type[Object]) -> JsonObject:
    declared = kind.declared
    out: JsonObject = {
        "name": kind.resource.version,
        "served": declared.served,
        "storage": declared.storage,
    }
    if declared.deprecated:
        out |= {"deprecated": True, "deprecationWarning": declared.deprecated}
    out["schema"] = {"openAPIV3Schema": upstream_fields.schema_of(kind)}
    if subresources := _subresources(declared):
        out["subresources"] = subresources
    if declared.columns:
        out["additionalPrinterColumns"] = [_column(column) for column in declared.columns]
    if declared.selectable:
        out["selectableFields"] = [{"jsonPath": path} for path in declared.selectable]
    return out


def _subresources(declared: Kind) -> JsonObject:
    out: JsonObject = {"status": {}} if declared.status else {}
    if scale := declared.scale:
        out["scale"] = {"specReplicasPath": scale.spec, "statusReplicasPath": scale.status}
        if scale.selector:
            out["scale"]["labelSelectorPath"] = scale.selector
    return out


def _column(column: Column) -> JsonObject:
    out: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        out["priority"] = column.priority
    if column.description:
        out["description"] = column.description
    return out


def _conversion(webhook: ConversionWebhook) -> JsonObject:
    client: JsonObject = {"url": webhook.url} if webhook.url else {"service": _service(webhook)}
    if webhook.ca:
        client["caBundle"] = webhook.ca
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }


def _service(webhook: ConversionWebhook) -> JsonObject:
    return {
        "name": webhook.service,
        "namespace": webhook.namespace,
        "port": webhook.port,
        "path": webhook.path,
    }
