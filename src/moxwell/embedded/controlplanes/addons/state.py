"""Applies the add-ons of a tenant, and reports which of them do not run yet."""

from collections.abc import Iterable

from moxwell.api.kinds import Resource
from moxwell.embedded.controlplanes.addons.objects import SPACE, Json
from moxwell.errors import Retryable
from moxwell.kube.client import Kube
from moxwell.kube.manifests import LABEL, apply_listed

NAME = "moxwell-addons"
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


async def apply_addons(kube: Kube, objects: Iterable[Json]) -> None:
    """Create or update the add-ons and delete those that are not configured any more."""
    await apply_listed(kube, objects, NAME, (SPACE, NAME))


async def describe_addons(kube: Kube) -> str | None:
    """What the add-ons of a tenant wait for; empty if all run, None if it has none."""
    labels = {LABEL: NAME}
    try:
        rows = [
            obj
            for kind in (DAEMON_SETS, DEPLOYMENTS)
            for obj in (await kube.list(kind, labels=labels)).items
        ]
    except Retryable as error:
        return f"they cannot be read: {error}"
    return "; ".join(filter(None, map(unready, rows))) if rows else None


def unready(obj: Json) -> str:
    """Why a DaemonSet or a Deployment does not run; empty if it does."""
    meta, status = obj["metadata"], obj.get("status") or {}
    if (status.get("observedGeneration") or 0) < (meta.get("generation") or 0):
        return f"{meta['name']}: not observed yet"
    if "desiredNumberScheduled" in status:
        wanted, running = status["desiredNumberScheduled"], status.get("numberAvailable") or 0
    else:
        wanted, running = obj["spec"].get("replicas", 1), status.get("availableReplicas") or 0
    return "" if running >= wanted else f"{meta['name']}: {running} of {wanted} pods available"
