"""
For which pods a node claim was created: recorded on the node claim, so that a restart knows it.

A pod is expected on its node claim until the node is initialized; then kube-scheduler binds it, and
a pod that is still pending is decided upon again.
"""

from collections.abc import Iterable

from moxwell.api.karpenter.nodeclaims import INITIALIZED, NodeClaim

EXPECTED_PODS = "moxwell.dev/expected-pods"


def record(uids: Iterable[str]) -> str:
    """The annotation value of the UIDs of pods."""
    return ",".join(sorted(uids))


def recorded(claim: NodeClaim) -> frozenset[str]:
    """The UIDs of the pods that a node claim was created for."""
    text = claim.metadata.annotations.get(EXPECTED_PODS, "")
    return frozenset(uid for uid in text.split(",") if uid)


def is_in_flight(claim: NodeClaim) -> bool:
    """Whether the node of a node claim is still being made."""
    done = any(c.type == INITIALIZED and c.status == "True" for c in claim.status.conditions)
    return not done and claim.metadata.deletion_timestamp is None


def expected_on(claims: Iterable[NodeClaim]) -> dict[str, str]:
    """From the UIDs of pods to the name of the node claim in flight that they wait for."""
    found: dict[str, str] = {}
    for claim in claims:
        if is_in_flight(claim):
            for uid in recorded(claim):
                found.setdefault(uid, claim.metadata.name)
    return found
