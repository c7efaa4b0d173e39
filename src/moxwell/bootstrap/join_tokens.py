"""
Join tokens that are bound to the name of one node. Pure.

The Secret of a bootstrap token names the node in an annotation. The group of such tokens may
request a kubelet certificate, but no controller of Kubernetes approves the request: Moxwell does,
if the request is for that node. So a token that leaks from one guest gives nobody the identity of
another node.
"""

from collections.abc import Mapping
from typing import Any

GROUP = "system:bootstrappers:karpenter:proxmox"  # the name is that of karpenter-provider-proxmox
NODE_NAME = "moxwell.dev/node-name"  # annotation of the Secret
CLAIM_LABEL = "karpenter.proxmox.sinextra.dev/bootstrap-token"  # value: the UID of the node claim
NAMESPACE = "kube-system"
USER_PREFIX = "system:bootstrap:"


def secret_name(user: str) -> str:
    """The Secret of the token that a user authenticated with; empty if it was no token."""
    return f"bootstrap-token-{user.removeprefix(USER_PREFIX)}" if is_token(user) else ""


def is_token(user: str) -> bool:
    return user.startswith(USER_PREFIX)


def is_bound(spec: Mapping[str, Any]) -> bool:
    """Whether a certificate signing request came with a token that is bound to a node."""
    return is_token(spec.get("username", "")) and GROUP in (spec.get("groups") or ())


def bound_metadata(node: str, claim_uid: str) -> dict[str, Any]:
    """The metadata that binds the Secret of a token to a node and its node claim."""
    return {"labels": {CLAIM_LABEL: claim_uid}, "annotations": {NODE_NAME: node}}
