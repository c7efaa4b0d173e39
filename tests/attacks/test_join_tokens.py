"""A join token that leaks from a guest gives nobody the identity of another node."""

import base64
from dataclasses import dataclass, replace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.api.core.resources import Secret
from moxwell.api.requests import Request, Response
from moxwell.bootstrap import join_tokens
from moxwell.controllers.karpenter.provider import InstanceState, NodeInstance
from moxwell.controllers.karpenter.proxmox.join_approver import REQUESTS
from moxwell.embedded.apiserver.auth import bootstrap_tokens
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.client import Kube
from moxwell.pki.kubelet_requests import KUBELET_SIGNER
from moxwell.testing.karpenter_environment import KarpenterEnvironment, karpenter_environment
from moxwell.testing.loop import run_virtual


@dataclass
class ApiWithToken:
    """The API as somebody with a bootstrap token reaches it."""

    store: EmbeddedApiServer
    token: str

    async def handle(self, request: Request) -> Response:
        user = bootstrap_tokens.authenticate(
            self.token, self.store.core.cache, self.store.core.clock
        )
        assert user is not None, "the token is not valid"
        return await self.store.handle(replace(request, user=user))


def csr(name: str, node: str) -> dict[str, Any]:
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    signed = made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": KUBELET_SIGNER, "usages": ["client auth"]}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }


async def join_token(env: KarpenterEnvironment) -> Secret | None:
    found = await env.kube.list(Secret, "kube-system", labels=join_tokens.CLAIM_LABEL)
    return found.items[0] if found.items else None


async def decided(env: KarpenterEnvironment, name: str) -> dict[str, Any]:
    async def condition() -> dict[str, Any] | None:
        request = await env.kube.get(REQUESTS, name)
        found = (request.get("status") or {}).get("conditions") or ()
        return found[0] if found else None

    found: dict[str, Any] = await env.stage.until(f"{name} is decided", condition)
    return found


async def with_a_stolen_token(env: KarpenterEnvironment) -> None:
    claim = await env.claim("honest")
    await env.provider.launch(claim)
    token: Secret = await env.stage.until("there is a token", lambda: join_token(env))
    node = token.metadata.annotations[join_tokens.NODE_NAME]
    text = f"{token.read('token-id')}.{token.read('token-secret')}"
    thief = Kube(ApiWithToken(env.store, text), manager="thief")
    await thief.create(csr("stolen", "control-plane-1"), REQUESTS)
    refused = await decided(env, "stolen")
    assert refused["type"] == "Denied"
    assert f"for the node {node}, not for control-plane-1" in refused["message"]

    async def joined() -> bool:
        found = await env.provider.instance(claim)
        launched = isinstance(found, NodeInstance) and found.state is InstanceState.LAUNCHED
        nodes = {n["metadata"]["name"] for n in (await env.kube.list(NODES)).items}
        return launched and nodes == {node}

    await env.stage.until("the node has joined with its token", joined)
    await env.provider.terminate(claim.name, claim.uid)


async def with_a_revoked_token(env: KarpenterEnvironment) -> None:
    async def gone() -> bool:
        return await join_token(env) is None

    await env.stage.until("the token is revoked", gone)


def test_a_token_joins_its_own_node_only() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            await with_a_stolen_token(env)
            await with_a_revoked_token(env)

    run_virtual(story())
