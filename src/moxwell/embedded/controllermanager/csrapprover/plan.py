"""
Whether a CertificateSigningRequest of a kubelet is approved or denied. Pure.

The conditions of a request are written by whoever decides on it: this controller or a person with
``kubectl certificate approve``. A request that has a decision is left alone, and so is one with a
token that is bound to a node: the autoscaler decides on it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from moxwell.bootstrap.join_tokens import is_bound
from moxwell.embedded.controllermanager.resources import CERTIFICATE_SIGNING_REQUESTS
from moxwell.embedded.writing import WriteMove
from moxwell.pki import kubelet_requests
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = Mapping[str, Any]


class CSRReason(StrEnum):
    """Reasons of the Approved and Denied conditions."""

    APPROVED = "AutoApproved"
    DENIED = "NotANode"


def next_move(request: Json) -> WriteMove:
    """Decide on a request of the kubelet signer."""
    if not kubelet_requests.is_undecided(request) or is_bound(request["spec"]):
        return Done()
    why_not = kubelet_requests.denial(request["spec"])
    reason = CSRReason.DENIED if why_not else CSRReason.APPROVED
    change = kubelet_requests.decision(request, why_not, reason)
    name = request["metadata"]["name"]
    return Writes((Merge(CERTIFICATE_SIGNING_REQUESTS, name, change, subresource="approval"),))
