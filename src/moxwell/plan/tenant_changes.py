"""What the controller of a tenant is about to write, as changes that a plan prints. Pure."""

from collections.abc import Iterator

from moxwell.controllers.tenancy.apply_prediction import differences, predict_apply
from moxwell.controllers.tenancy.cluster.diff import Action, ObjectChange, name_of
from moxwell.controllers.tenancy.tenant.plan import ObservedTenantNamespace, TenantChanges
from moxwell.pve.steps import DeleteSecurityGroup, EnsureSecurityGroup
from moxwell.runtime.writes import Apply


def tenant_changes(move: TenantChanges, seen: ObservedTenantNamespace) -> Iterator[ObjectChange]:
    """Steps in Proxmox, then objects."""
    groups = {found.region for found in seen.firewalls or () if found.group is not None}
    for step in move.steps:
        match step:
            case EnsureSecurityGroup():
                action: Action = "update" if step.region in groups else "create"
                yield ObjectChange(action, "SecurityGroup", f"{step.region}/{step.group}")
            case DeleteSecurityGroup():
                yield ObjectChange("delete", "SecurityGroup", f"{step.region}/{step.group}")
            case _:
                yield ObjectChange("update", type(step).__name__, step.region)
    existing = {name_of(obj): obj for obj in seen.objects}
    for write in move.writes:
        if not isinstance(write, Apply):
            continue
        name = name_of(write.obj)
        found = existing.get(name)
        if found is None:
            yield ObjectChange("create", *name)
        elif fields := differences(found, predict_apply(found, write.obj, write.manager)):
            yield ObjectChange("update", *name, fields)
