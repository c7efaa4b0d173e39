"""Bootstrap tokens of machines, and the Secrets that contain their bootstrap data."""

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.kinds import Object, owner_reference
from moxwell.api.meta import parse_time
from moxwell.bootstrap import join_tokens
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.writes import Merge

Json = dict[str, Any]
LIFE = timedelta(minutes=15)
RENEW_SECONDS = 300.0
GROUPS = "system:bootstrappers:kubeadm:default-node-token"
CLAIM_UID = "moxwell.dev/nodeclaim-uid"  # label of the machines of the autoscaler
TOKEN_ID = "moxwell.dev/bootstrap-token-id"  # annotation of the data Secret


def token_secret(token: str, now: datetime, config: Object) -> Json:
    """
    The bootstrap token Secret in ``kube-system``; the token is valid for ``LIFE``.

    The token of a machine of the autoscaler is bound to the name of its node, which is that of its
    bootstrap object.
    """
    claim = config.metadata.labels.get(CLAIM_UID)
    bound = join_tokens.bound_metadata(config.name, claim) if claim else {}
    short, _, rest = token.partition(".")
    fields = {
        "token-id": short,
        "token-secret": rest,
        "expiration": expiry(now),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": join_tokens.GROUP if bound else GROUPS,
        "description": "token of a machine that joins the cluster",
    }
    data = {name: base64.b64encode(text.encode()).decode() for name, text in fields.items()}
    meta = {"name": f"bootstrap-token-{short}", "namespace": "kube-system"} | bound
    kind = "bootstrap.kubernetes.io/token"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind, "data": data}


def expiry(now: datetime) -> str:
    """When a token that is created or renewed now expires."""
    return (now + LIFE).strftime("%Y-%m-%dT%H:%M:%SZ")


def needs_renewal(token: Json, now: datetime) -> bool:
    """Whether less than half of the lifetime of a token is left."""
    until = base64.b64decode((token.get("data") or {}).get("expiration", "")).decode()
    return not until or parse_time(until) - now < LIFE / 2


async def find_token(tenants: TenantClients, machine: Machine, data: Json) -> Json | None:
    """The bootstrap token of a machine that has not joined yet."""
    token_id = (data["metadata"].get("annotations") or {}).get(TOKEN_ID)
    if machine.status.node_ref is not None or not token_id:
        return None
    tenant: Reader | None = await tenants.find(Key(machine.namespace, machine.spec.cluster_name))
    if tenant is None:
        return None
    return await tenant.find(SECRETS, f"bootstrap-token-{token_id}", "kube-system")


@dataclass(frozen=True, slots=True)
class RenewToken:
    """Extend the validity of a bootstrap token in the tenant cluster."""

    tenant: Key
    name: str
    now: datetime
    requeue_after: float = RENEW_SECONDS

    def write(self) -> Merge:
        expiration = base64.b64encode(expiry(self.now).encode()).decode()
        change = {"data": {"expiration": expiration}}
        return Merge(SECRETS, self.name, change, "kube-system", missing_ok=True)


def renewal(machine: Machine, token: Json | None, now: datetime) -> RenewToken | Done:
    """The move for a machine that has its bootstrap data: the token is valid until it joined."""
    if machine.status.node_ref is not None:
        return Done()
    if token is not None and needs_renewal(token, now):
        tenant = Key(machine.namespace, machine.spec.cluster_name)
        return RenewToken(tenant, token["metadata"]["name"], now)
    return Done(RENEW_SECONDS)


def new_token() -> str:
    """A bootstrap token of the form that Kubernetes requires."""
    return f"{random_text(6)}.{random_text(16)}"


def random_text(count: int) -> str:
    """Random lower-case letters and digits."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(alphabet) for _ in range(count))


def data_secret(
    config: Object, cluster: str, data: str, token: str = "", *, kind: str = "cloud-config"
) -> Json:
    """The Secret with the bootstrap data of a machine, named like its bootstrap object."""
    recorded = {"annotations": {TOKEN_ID: token.partition(".")[0]}} if token else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": config.name,
            "namespace": config.namespace,
            "labels": {CLUSTER_NAME: cluster},
            **recorded,
            "ownerReferences": [msgspec.to_builtins(owner_reference(config))],
        },
        "type": SECRET_TYPE,
        "data": {
            "value": base64.b64encode(data.encode()).decode(),
            "format": base64.b64encode(kind.encode()).decode(),
        },
    }
