"""The loop over TenantControlPlanes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.kamaji import TenantControlPlane, TenantControlPlaneStatus
from moxwell.api.kinds import own
from moxwell.embedded.clusterapi.tenant_clients import SECRETS
from moxwell.embedded.clusterapi.tenantcontrolplane import plan
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 2.0
LOOK_SECONDS = 300.0  # certificates are renewed in time


class TenantPlanes:
    """Keeps hosted control planes as they are asked for."""

    kind = TenantControlPlane
    finalizer = "kamaji.clastix.io"
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, planes: plan.Planes) -> None:
        self._kube, self._planes = kube, planes

    async def reconcile(self, tenant: TenantControlPlane) -> Outcome[TenantControlPlaneStatus]:
        key = Key(tenant.namespace, tenant.name)
        if tenant.deleting:
            await self._planes.destroy(key)
            return Outcome(None, settled=True)
        running = tenant.status.kubernetes_resources.version.version
        if why := plan.refusal(running, tenant.spec.kubernetes.version):
            raise Invalid(why)
        if tenant.spec.control_plane.deployment.replicas == 0:
            await self._planes.sleep(key)
            return Outcome(plan.describe(tenant, None))
        plane = await self._planes.ensure(plan.wish(tenant))
        notes = await self._publish(tenant, plane) if plane.ready else ()
        status = plan.describe(tenant, plane)
        return Outcome(status, again=LOOK_SECONDS if plane.ready else POLL_SECONDS, notes=notes)

    async def _publish(self, tenant: TenantControlPlane, plane: plan.Plane) -> tuple[Note, ...]:
        owner = msgspec.to_builtins(own(tenant))
        notes = []
        for secret in plan.secrets(tenant, plane, owner):
            if await put_secret(self._kube, secret):
                notes.append(Note("SecretWritten", f"wrote Secret {secret['metadata']['name']}"))
        return tuple(notes)


async def put_secret(kube: Kube, secret: dict[str, Any]) -> bool:
    """Make or update a Secret; True where something was written."""
    meta = secret["metadata"]
    found = await kube.find(SECRETS, meta["name"], meta["namespace"])
    if found is None:
        await kube.create(secret, SECRETS)
        return True
    if found.get("data") == secret["data"]:
        return False
    await kube.merge(SECRETS, meta["name"], {"data": secret["data"]}, meta["namespace"])
    return True
