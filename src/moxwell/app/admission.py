"""
Admission and conversion of our kinds, for the embedded apiserver and for the webhooks.

The rules are pure functions of :mod:`moxwell.api`; here an object is converted to the hub version
first.
"""

from typing import Any

from moxwell.api import conversion, registry
from moxwell.api.infra import admission
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.errors import Denied, Invalid, Unsupported

Json = dict[str, Any]
CLAIM_VERB = "claim"  # of proxmoxmachines, checked for the whole cluster


class ClaimDenied(Denied):
    """The user may not write ``spec.claim``."""

    reason = "ClaimDenied"


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


def refuse(group: str, kind: str, new: Json | None, old: Json | None, *, dry_run: bool) -> None:
    """
    Raise Invalid if a write breaks a rule; the message says what to change.

    Writes that leave the spec unchanged are always admitted: a rule that is newer than the object
    must not prevent the removal of a finalizer.
    """
    hub = _hub(group, kind)
    if hub is None or new is None or (new.get("metadata") or {}).get("deletionTimestamp"):
        return
    after, before = _as_hub(hub, new), None if old is None else _as_hub(hub, old)
    if before is not None and before.get("spec") == after.get("spec"):
        return
    old_object = None if before is None else conversion.decode_object(hub, before)
    messages = admission.validation_errors(
        conversion.decode_object(hub, after), old_object, dry_run=dry_run
    )
    if messages:
        raise Invalid("; ".join(messages))


def _hub(group: str, name: str) -> type[Object] | None:
    stored = (k for k in registry.OURS if k.declared.storage)
    return next((k for k in stored if (k.resource.group, k.resource.kind) == (group, name)), None)


def _as_hub(kind: type[Object], tree: Json) -> Json:
    """The object in the hub version."""
    family = registry.find_conversion(kind.resource.group, kind.resource.kind)
    return dict(family.convert(tree, kind.resource.version)) if family else tree
