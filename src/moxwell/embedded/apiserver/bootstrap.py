"""Creates and completes the default namespaces, priority classes and RBAC objects at start."""

from typing import Any

import structlog

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth import bootstrap as access
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.resources import ServedResource

log = structlog.get_logger(__name__)

Object = dict[str, Any]
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def _priorities() -> list[Object]:
    return [
        {
            "metadata": {"name": f"system-{name}-critical"},
            "value": value,
            "description": "Used for system critical pods that " + what,
        }
        for name, value, what in (
            (
                "cluster",
                2000000000,
                "must run in the cluster, but can be moved to another node if necessary.",
            ),
            ("node", 2000001000, "must not be moved from their current node."),
        )
    ]


def ensure(core: ServerContext) -> None:
    """Create the missing default objects; complete the default roles and bindings."""
    wanted: list[tuple[str, Object]] = [
        ("namespaces", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    wanted += [("priorityclasses.scheduling.k8s.io", obj) for obj in _priorities()]
    wanted += access.objects()
    for group_resource, obj in wanted:
        resource, meta = core.registry.hub(group_resource), obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        if resource is None:
            continue
        record = core.cache.find_staged(group_resource, key)
        try:
            _ensure(core, resource, obj, record)
        except status_errors.StatusError as error:  # a database above its quota still serves
            shown = f"{group_resource}/{key}"
            log.warning("default object not stored", object=shown, error=str(error))


def _ensure(
    core: ServerContext, resource: ServedResource, obj: Object, record: ObjectRecord | None
) -> None:
    if record is None:
        core.create(resource, obj)
    elif resource.group_resource in (access.ROLES, access.BINDINGS):
        changed = access.reconciled(record.object(), obj)
        if changed is not None:
            core.put(resource, changed, record)
