"""
Admission and conversion of our kinds, for the embedded apiserver and for the webhooks.

The rules are pure functions of :mod:`moxwell.api` and of the controllers; here an object is
converted to the hub version first. What depends on regions and quotas is checked once a
``Validators`` is given: an API server starts before the regions are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moxwell.api import conversion, registry
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.field_errors import FieldError, InvalidFields
from moxwell.api.infra import admission
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.annotations import annotation_errors
from moxwell.api.kinds import Object
from moxwell.api.unknown_fields import new_unknown_fields
from moxwell.clock import Clock
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.infra.validation import infrastructure_errors
from moxwell.errors import Denied, Unsupported
from moxwell.runtime.manager import Runtime

if TYPE_CHECKING:  # an operator without tenants does not load their rules
    from moxwell.controllers.tenancy.cluster.defaults import Defaults
    from moxwell.controllers.tenancy.cluster.quotas import ClusterName
    from moxwell.controllers.tenancy.cluster.validator import ClusterValidator

Json = dict[str, Any]
CLAIM_VERB = "claim"  # of proxmoxmachines, checked for the whole cluster


class ClaimDenied(Denied):
    """The user may not write ``spec.claim``."""

    reason = "ClaimDenied"


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators that need the regions and the quotas."""

    regions: KnownRegions
    clusters: "ClusterValidator | None" = None

    @classmethod
    def make(
        cls,
        runtime: Runtime,
        known: KnownRegions,
        clock: Clock,
        defaults: "Callable[[], Defaults] | None" = None,
        volumes: "Callable[[], Mapping[ClusterName, int]]" = dict,
    ) -> "Validators":
        """For the caches of a runtime, and for tenants if ``defaults`` are given."""
        runtime.manager.add_loop("infra.known", known.run)
        if defaults is None:
            return cls(known)
        from moxwell.controllers.tenancy.cluster.validator import ClusterValidator, QuotaCaches

        caches = QuotaCaches.of(runtime.manager.caches)
        return cls(known, ClusterValidator(known.now, defaults, caches, clock, volumes))


def convert(obj: Json, api_version: str) -> Json:
    """Convert an object to another apiVersion of its group."""
    group = api_version.rpartition("/")[0]
    family = registry.find_conversion(group, str(obj.get("kind", "")))
    if family is None:
        raise Unsupported(f"{obj.get('kind')}.{group} has one version only")
    converted: Json = family.convert(obj, api_version.rpartition("/")[2])
    return converted


def refuse_claim(group: str, kind: str, new: Json | None, old: Json | None) -> None:
    """
    Raise ClaimDenied if a write sets, changes or removes the claim of a ProxmoxMachine.

    For users without the verb ``claim``: the controller and whoever runs ``clusterctl move`` have
    it. On a genuine Kubernetes the ValidatingAdmissionPolicy of the release has the same rule.
    """
    hub = _hub(group, kind)
    if hub is not ProxmoxMachine or new is None:
        return
    if _claim(hub, new) != (None if old is None else _claim(hub, old)):
        raise ClaimDenied(
            "spec.claim is written by the controller; to move machines between management "
            "clusters, use an account with the verb claim on proxmoxmachines in all namespaces"
        )


def _claim(hub: type[Object], tree: Json) -> object:
    return (_as_hub(hub, tree).get("spec") or {}).get("claim") or None


def refuse(
    group: str,
    kind: str,
    new: Json | None,
    old: Json | None,
    *,
    dry_run: bool,
    validators: Validators | None = None,
) -> None:
    """
    Raise Invalid if a write breaks a rule; the message says what to change.

    Writes that leave the spec and our annotations unchanged are always admitted: a rule that is
    newer than the object must not prevent the removal of a finalizer.
    """
    if wrong := annotation_errors(group, kind, new, old):
        raise InvalidFields(wrong)
    hub = _hub(group, kind)
    if hub is None or new is None or (new.get("metadata") or {}).get("deletionTimestamp"):
        return
    after, before = _as_hub(hub, new), None if old is None else _as_hub(hub, old)
    if before is not None and before.get("spec") == after.get("spec"):
        return
    unknown = new_unknown_fields(hub, after, before)
    if unknown:
        raise InvalidFields(unknown)
    obj = conversion.decode_object(hub, after)
    old_object = None if before is None else conversion.decode_object(hub, before)
    messages = admission.validation_errors(obj, old_object, dry_run=dry_run)
    errors = [FieldError("", message) for message in messages]
    if not errors and validators is not None:
        errors += _errors(obj, old_object, validators)
    if errors:
        raise InvalidFields(errors)
    if isinstance(obj, Kubernetes) and not dry_run and validators and validators.clusters:
        validators.clusters.accept(obj)


def _errors(obj: Object, old: Object | None, validators: Validators) -> tuple[FieldError, ...]:
    """What depends on regions and quotas."""
    clusters, known = validators.clusters, validators.regions.now()
    match obj:
        case Kubernetes():
            before = old if isinstance(old, Kubernetes) else None
            return clusters.errors(obj, before) if clusters else ()
        case Tenant():
            from moxwell.controllers.tenancy.tenant.validation import tenant_errors

            return tenant_errors(obj, old if isinstance(old, Tenant) else None, known)
    if validators.regions.others_exist():
        known = replace(known, complete=False)
    return infrastructure_errors(obj, old, known)


def _hub(group: str, name: str) -> type[Object] | None:
    stored = (k for k in registry.OURS if k.declared.storage)
    return next((k for k in stored if (k.resource.group, k.resource.kind) == (group, name)), None)


def _as_hub(kind: type[Object], tree: Json) -> Json:
    """The object in the hub version."""
    family = registry.find_conversion(kind.resource.group, kind.resource.kind)
    return dict(family.convert(tree, kind.resource.version)) if family else tree
