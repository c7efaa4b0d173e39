"""
Bootstrap data of machines whose node class has templates in a Secret, with a join token each.

A token is bound to the name of one node (see ``bootstrap.join_tokens``), carries kubeadm's signing
usage, and is deleted when the node has registered or the claim is gone.
"""

import base64
import hashlib
import secrets
from datetime import timedelta
from typing import Any

from moxwell.api.core.resources import ConfigMap, Secret
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass, SecretReference
from moxwell.bootstrap import join_tokens, node_templates
from moxwell.bootstrap.node_templates import NodeTemplateData
from moxwell.clock import Clock
from moxwell.controllers.karpenter.proxmox.instance_record import InstanceRecord, uid_label
from moxwell.controllers.karpenter.proxmox.kubelet_settings import (
    kubelet_patch,
    registration_taints,
)
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.writes import Create, Delete
from moxwell.scheduling.guest_sizes import GuestOverhead
from moxwell.scheduling.resource_lists import MILLI, offered, requested

TOKEN_LABEL = join_tokens.CLAIM_LABEL  # value: the UID of the node claim
TOKEN_NAMESPACE = join_tokens.NAMESPACE
TOKEN_LIFE = timedelta(hours=1)
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_GIB, _MIB = 1 << 30, 1 << 20
Json = dict[str, Any]


class SecretUnusable(Invalid):
    """A Secret of a node class is missing or cannot be read."""

    reason = "SecretNotFound"


class NodeBootstrap:
    """Makes bootstrap data with the API of the scaled cluster."""

    def __init__(self, scaled: Kube, clock: Clock) -> None:
        self._kube, self._clock = scaled, clock

    async def version(self, chosen: str) -> str:
        """
        The Kubernetes version of new nodes: the operator's choice, else that of the API server.

        Cluster API's kubeadm provider makes no bootstrap data for a Machine without a version.
        """
        return chosen or (await self._kube.version()).git_version

    async def data(
        self,
        node: str,
        claim: NodeClaim,
        node_class: ProxmoxNodeClass,
        record: InstanceRecord,
        version: str,
    ) -> dict[str, str]:
        """The data of the Secret in the management cluster, with a token for this node only."""
        options = node_class.spec.metadata_options
        templates = await self.read(options.templates_ref, "spec.metadataOptions.templatesRef")
        values = await self.read(options.values_ref, "spec.metadataOptions.valuesRef")
        ca = await self._kube.find(ConfigMap, "kube-root-ca.crt", TOKEN_NAMESPACE)
        overhead = GuestOverhead(
            *(requested(record.overhead.get(part)) for part in ("kube", "system", "eviction"))
        )
        capacity = offered(record.capacity)
        content = NodeTemplateData(
            templates={k: v for k, v in templates.items() if k in node_templates.FILES},
            values=values,
            node_class=node_class.name,
            instance_type=record.instance_type,
            tags=node_class.spec.tags,
            cpus=record.cpus,
            memory_bytes=record.memory_mib * _MIB,
            hugepages_1gi=capacity.get("hugepages-1Gi", 0) // MILLI // _GIB,
            hugepages_2mi=capacity.get("hugepages-2Mi", 0) // MILLI // (2 * _MIB),
            version=version,
            root_ca=ca.data.get("ca.crt", "") if ca else "",
            token=await self._token(claim, node),
            kubelet=kubelet_patch(node_class.spec.kubelet_configuration, overhead),
            taints=registration_taints(claim),
        )
        return {"value": node_templates.encode(content), "format": node_templates.FORMAT}

    async def read(self, ref: SecretReference | None, field: str) -> dict[str, str]:
        """The keys of a Secret in the scaled cluster; none if the field is not set."""
        if ref is None or not ref.name:
            return {}
        found = await self._kube.find(Secret, ref.name, ref.namespace or TOKEN_NAMESPACE)
        if found is None:
            where = f"{ref.namespace or TOKEN_NAMESPACE}/{ref.name}"
            raise SecretUnusable(f"{field}: Secret {where} does not exist; create it")
        return {key: _text(found, key, field) for key in found.data}

    async def _token(self, claim: NodeClaim, node: str) -> str:
        """The join token of a claim: an earlier one if it exists, else a new one."""
        short = _token_id(claim.uid)
        name = f"bootstrap-token-{short}"
        found = await self._kube.find(Secret, name, TOKEN_NAMESPACE)
        if found is not None and found.metadata.labels.get(TOKEN_LABEL) == claim.uid:
            return f"{short}.{found.read('token-secret') or ''}"
        secret = "".join(secrets.choice(_ALPHABET) for _ in range(16))
        until = (self._clock.now() + TOKEN_LIFE).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _token_secret(claim, node, short, secret, until)
        if await Create(body, Secret.resource).perform(self._kube) is None:
            raise Invalid(f"Secret {name} exists and is not the token of this claim; delete it")
        return f"{short}.{secret}"

    async def revoke(self, uid: str) -> None:
        """Delete the join tokens of a claim, also one that the bootstrap provider made."""
        labels = f"{TOKEN_LABEL}={uid_label(uid)}"
        for found in (await self._kube.list(Secret, TOKEN_NAMESPACE, labels=labels)).items:
            await Delete(Secret, found.name, TOKEN_NAMESPACE, uid=found.uid).perform(self._kube)


def _text(secret: Secret, key: str, field: str) -> str:
    try:
        return secret.read(key) or ""
    except ValueError:
        where = f"Secret {secret.namespace}/{secret.name}, key {key}"
        raise SecretUnusable(f"{field}: {where} is not UTF-8 text; correct it") from None


def _token_id(uid: str) -> str:
    digest = hashlib.sha256(f"bootstrap-token/{uid}".encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:6])


def _token_secret(claim: NodeClaim, node: str, short: str, secret: str, until: str) -> Json:
    fields = {
        "token-id": short,
        "token-secret": secret,
        "expiration": until,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": join_tokens.GROUP,
        "description": f"join token of node claim {claim.name}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"bootstrap-token-{short}",
            "namespace": TOKEN_NAMESPACE,
        }
        | join_tokens.bound_metadata(node, uid_label(claim.uid)),
        "type": "bootstrap.kubernetes.io/token",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in fields.items()},
    }
