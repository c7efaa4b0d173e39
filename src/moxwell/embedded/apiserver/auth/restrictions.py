"""The admission checks of identities: mirror pods, NodeRestriction and certificate requests."""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth import pod_references
from moxwell.embedded.apiserver.auth.certificate_admission import CertificateAdmission
from moxwell.embedded.apiserver.auth.node_restriction import NodeRestriction
from moxwell.embedded.apiserver.auth.rbac import Authorizer
from moxwell.embedded.apiserver.hooks import AdmissionAttributes
from moxwell.embedded.apiserver.object_cache import ObjectCache


def restrictions(
    cache: ObjectCache, authorizer: Authorizer
) -> Callable[[AdmissionAttributes], None]:
    """A check that raises 403 for a write that its user may not make."""
    nodes, certificates = NodeRestriction(cache, authorizer), CertificateAdmission(authorizer)

    def check(review: AdmissionAttributes) -> None:
        if (review.operation, review.plural, review.subresource) == ("CREATE", "pods", ""):
            _check_mirror_pod(review)
        nodes.check(review)
        certificates.check(review)

    return check


def _check_mirror_pod(review: AdmissionAttributes) -> None:
    """A pod that a kubelet creates for a static pod gets neither an account nor Secrets."""
    pod = review.object or {}
    if review.group or not pod_references.is_mirror(pod):
        return
    spec = pod.get("spec") or {}
    wrong = ""
    if spec.get("serviceAccountName"):
        wrong = "reference service accounts"
    elif any(True for _ in pod_references.secrets_of(pod)):
        wrong = "reference secrets"
    elif _projects_token(spec):
        wrong = "use ServiceAccountToken volume projections"
    if wrong:
        why = f"a mirror pod may not {wrong}"
        raise status_errors.forbidden("pods", "", review.name, why)


def _projects_token(spec: Mapping[str, Any]) -> bool:
    volumes = spec.get("volumes") or ()
    return any(
        source.get("serviceAccountToken") is not None
        for volume in volumes
        for source in (volume.get("projected") or {}).get("sources") or ()
    )
