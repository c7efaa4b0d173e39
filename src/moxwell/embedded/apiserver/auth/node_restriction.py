"""
The NodeRestriction admission: which objects a kubelet may write.

A kubelet writes its own Node (without taints, owners and protected labels), Lease and CSINode,
mirror pods of its node, the status of pods of its node and the capacity of their claims; it
requests tokens and certificates for itself and its pods only.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth import pod_references
from moxwell.embedded.apiserver.auth.node_authorizer import LEASES, PREFIX, node_identity
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes
from moxwell.embedded.apiserver.auth.rbac import Authorizer, aggregate
from moxwell.embedded.apiserver.builtin.pod_defaults import MIRROR
from moxwell.embedded.apiserver.hooks import AdmissionAttributes
from moxwell.embedded.apiserver.object_cache import ObjectCache, ObjectRecord, key_of
from moxwell.embedded.apiserver.status_errors import StatusError

Object = Mapping[str, Any]
_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_KUBELET_LABELS = frozenset(
    [
        "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
        "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ]
)  # fmt: skip
_KUBELET_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")


class NodeRestriction:
    """Checks the writes of kubelets; those of other users pass."""

    def __init__(self, cache: ObjectCache, authorizer: Authorizer) -> None:
        self._cache, self._authorizer = cache, authorizer

    def check(self, review: AdmissionAttributes) -> None:
        """Raise 403 if a kubelet may not make this write."""
        is_node, node = node_identity(review.user)
        if not is_node:
            return
        if not node:
            raise _no(review, f'could not determine node from user "{review.user.name}"')
        match review.group, review.plural:
            case "", "pods":
                self._pod(node, review)
            case "", "nodes":
                _check_node(node, review)
            case "", "persistentvolumeclaims":
                _check_claim(node, review)
            case "", "serviceaccounts" if review.subresource == "token":
                self._token(node, review)
            case "coordination.k8s.io", "leases":
                if review.namespace != LEASES:
                    raise _no(review, f'can only access leases in the "{LEASES}" system namespace')
                _same_name(node, review, "node lease")
            case "storage.k8s.io", "csinodes":
                _same_name(node, review, "CSINode")
            case "certificates.k8s.io", "certificatesigningrequests":
                _check_csr(node, review)

    # pods

    def _pod(self, node: str, review: AdmissionAttributes) -> None:
        quoted = f'node "{node}"'
        match review.subresource, review.operation:
            case "", "CREATE":
                self._mirror_pod(node, review)
            case "", "DELETE":
                if self._node_of(review) != node:
                    why = f"{quoted} can only delete pods with spec.nodeName set to itself"
                    raise _no(review, why)
            case "status", "UPDATE":
                _check_pod_status(node, review)
            case "eviction", "CREATE":
                if self._node_of(review) != node:
                    why = f"node {node} can only evict pods with spec.nodeName set to itself"
                    raise _no(review, why)
            case "" | "status" | "eviction", operation:
                if review.subresource:
                    raise _no(review, f'unexpected operation "{operation}"')
                what = f"{quoted} can only create and delete mirror pods"
                raise _no(review, f'unexpected operation "{operation}", {what}')
            case other, _:
                only = "only 'status' and 'eviction' are allowed"
                raise _no(review, f'unexpected pod subresource "{other}", {only}')

    def _find_pod(self, namespace: str, name: str) -> ObjectRecord:
        record = self._cache.find_staged("pods", key_of(namespace, name))
        if record is None:
            raise status_errors.not_found("pod", "", name)
        return record

    def _node_of(self, review: AdmissionAttributes) -> str:
        pod = self._find_pod(review.namespace, review.name).object()
        return str((pod.get("spec") or {}).get("nodeName", ""))

    def _mirror_pod(self, node: str, review: AdmissionAttributes) -> None:
        pod, who = review.object or {}, f'node "{node}"'
        if not pod_references.is_mirror(pod):
            have = f'pod does not have "{MIRROR}" annotation'
            raise _no(review, f"{have}, {who} can only create mirror pods")
        if (pod.get("spec") or {}).get("nodeName") != node:
            raise _no(review, f"{who} can only create pods with spec.nodeName set to itself")
        self._owner(node, review, pod["metadata"].get("ownerReferences") or [])
        referenced = pod_references.api_object_reference(pod)
        if referenced:
            raise _no(review, f"{who} can not create pods that reference {referenced}")

    def _owner(self, node: str, review: AdmissionAttributes, owners: list[Object]) -> None:
        can = f'node "{node}" can only create pods with'
        if len(owners) > 1:
            raise _no(review, f"{can} a single owner reference set to itself")
        owner: Object = owners[0] if owners else {}
        named = (owner.get("apiVersion"), owner.get("kind"), owner.get("name"))
        if named != ("v1", "Node", node):
            raise _no(review, f"{can} an owner reference set to itself")
        if not owner.get("controller"):
            raise _no(review, f"{can} a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            why = f'node "{node}" must not set blockOwnerDeletion on an owner reference'
            raise _no(review, why)
        record = self._cache.find_staged("nodes", node)
        if record is None:
            raise status_errors.not_found("node", "", node)
        if owner.get("uid") != record.uid:
            found = f"expected {owner.get('uid')} got {record.uid}"
            raise _no(review, f"node {node} UID mismatch: {found}")

    # tokens

    def _token(self, node: str, review: AdmissionAttributes) -> None:
        spec = (review.object or {}).get("spec") or {}
        ref = spec.get("boundObjectRef") or {}
        if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
            raise _no(review, "node requested token not bound to a pod")
        if not ref.get("uid"):
            raise _no(review, "node requested token with a pod binding without a uid")
        record = self._find_pod(review.namespace, str(ref["name"]))
        if record.uid != ref["uid"]:
            raise _no(
                review,
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in"
                " record. The object might have been deleted and then recreated",
            )
        pod = record.object()
        if (pod.get("spec") or {}).get("nodeName") != node:
            raise _no(review, "node requested token bound to a pod scheduled on a different node")
        self._audience(review, pod, spec.get("audiences") or [""])

    def _audience(self, review: AdmissionAttributes, pod: Object, audiences: list[str]) -> None:
        """A kubelet requests the audiences of the pod's volumes, or those granted to it."""
        if len(audiences) > 1:
            raise _no(review, "node may only request 0 or 1 audiences")
        audience, errors = audiences[0], list[str]()
        if audience in self._audiences_of(pod, errors):
            return
        if errors:
            why = f'error validating audience "{audience}": {aggregate(errors)}'
            raise _no(review, why)
        asked = AuthorizationAttributes(
            "request-serviceaccounts-token-audience",
            resource=audience,
            name=review.name,
            namespace=review.namespace,
        )
        if not self._authorizer.is_allowed(review.user, asked):
            raise _no(
                review,
                f'audience "{audience}" not found in pod spec volume, {review.user.name}'
                " is not authorized to request tokens for this audience",
            )

    def _audiences_of(self, pod: Object, errors: list[str]) -> set[str]:
        found: set[str] = set()
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if source.get("serviceAccountToken") is not None:
                    found.add(source["serviceAccountToken"].get("audience", ""))
            try:
                found |= self._audiences_of_driver(self._driver_of(pod, volume))
            except LookupError as error:
                errors.append(str(error))
        return found

    def _driver_of(self, pod: Object, volume: Object) -> str:
        """The CSI driver of a volume; empty if it has none."""
        if volume.get("csi"):
            return str(volume["csi"].get("driver", ""))
        claims = list(pod_references.claims_of({**pod, "spec": {"volumes": [volume]}}))
        if not claims:
            return ""
        namespace = pod["metadata"]["namespace"]
        claim = self._find("persistentvolumeclaims", claims[0], namespace)
        bound = self._find("persistentvolumes", (claim.get("spec") or {}).get("volumeName", ""))
        return str(((bound.get("spec") or {}).get("csi") or {}).get("driver", ""))

    def _audiences_of_driver(self, driver: str) -> set[str]:
        found = self._find("csidrivers.storage.k8s.io", driver) if driver else {}
        requests = (found.get("spec") or {}).get("tokenRequests") or ()
        return {request.get("audience", "") for request in requests}

    def _find(self, group_resource: str, name: str, namespace: str = "") -> Object:
        record = self._cache.find_staged(group_resource, key_of(namespace, name))
        if record is None:
            shown = group_resource.replace("s.", ".", 1) if "." in group_resource else ""
            raise LookupError(f'{shown or group_resource[:-1]} "{name}" not found')
        return record.object()


# Checks that need no other object


def _check_pod_status(node: str, review: AdmissionAttributes) -> None:
    new, old, who = review.object or {}, review.old or {}, f'node "{node}"'
    if (old.get("spec") or {}).get("nodeName") != node:
        why = f"{who} can only update pod status for pods with spec.nodeName set to itself"
        raise _no(review, why)
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        raise _no(review, f"{who} cannot update labels through pod status")
    for field, shown in (
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
    ):
        if (new.get("status") or {}).get(field) != (old.get("status") or {}).get(field):
            raise _no(review, f"{who} cannot update {shown}")


def _check_claim(node: str, review: AdmissionAttributes) -> None:
    if review.subresource != "status":
        raise _no(review, "may only update PVC status")
    if review.operation != "UPDATE":
        raise _no(review, f'unexpected operation "{review.operation}"')
    if _claim_identity(review.object or {}) != _claim_identity(review.old or {}):
        raise _no(
            review,
            f'node "{node}" is not allowed to update fields other than status.quantity and'
            " status.conditions",
        )


def _claim_identity(claim: Object) -> Object:
    """The parts of a claim that a kubelet must not change."""
    status = {k: v for k, v in (claim.get("status") or {}).items() if k not in _CLAIM_STATUS}
    hidden = ("resourceVersion", "managedFields")
    meta = {k: v for k, v in (claim.get("metadata") or {}).items() if k not in hidden}
    return {**claim, "metadata": meta, "status": status}


def _check_node(node: str, review: AdmissionAttributes) -> None:
    who = f'node "{node}"'
    if review.name != node:
        raise _no(review, f'{who} is not allowed to modify node "{review.name}"')
    new, old = review.object, review.old
    if review.operation == "CREATE" and new is not None:
        if (new.get("spec") or {}).get("configSource") is not None:
            raise _no(review, f"{who} is not allowed to create pods with a non-nil configSource")
        wrong = _forbidden_labels(_labels(new))
        if wrong:
            raise _no(review, f"{who} is not allowed to set the following labels: {wrong}")
    if review.operation == "UPDATE" and new is not None and old is not None:
        _check_node_update(who, review, new, old)


def _check_node_update(who: str, review: AdmissionAttributes, new: Object, old: Object) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    source = spec.get("configSource")
    if source is not None and source != before.get("configSource"):
        why = f"{who} is not allowed to update configSource to a new non-nil configSource"
        raise _no(review, why)
    if (spec.get("taints") or []) != (before.get("taints") or []):
        raise _no(review, f"{who} is not allowed to modify taints")
    owners = (obj["metadata"].get("ownerReferences") or [] for obj in (new, old))
    if next(owners) != next(owners):
        raise _no(review, f"{who} is not allowed to modify ownerReferences")
    changed = _labels(new).items() ^ _labels(old).items()
    wrong = _forbidden_labels({key for key, _ in changed})
    if wrong:
        raise _no(review, f"is not allowed to modify labels: {wrong}")


def _labels(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _forbidden_labels(keys: Iterable[str]) -> str:
    return ", ".join(sorted(key for key in keys if is_forbidden_label(key)))


def is_forbidden_label(key: str) -> bool:
    """Report whether a kubelet may not set, change or remove this label of its Node."""
    namespace = key.partition("/")[0] if "/" in key else ""
    if _within(namespace, "node-restriction.kubernetes.io"):
        return True
    if not (_within(namespace, "kubernetes.io") or _within(namespace, "k8s.io")):
        return False
    return key not in _KUBELET_LABELS and not any(
        _within(namespace, n) for n in _KUBELET_NAMESPACES
    )


def _within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith(f".{domain}")


def _same_name(node: str, review: AdmissionAttributes, what: str) -> None:
    if review.name != node:
        raise _no(review, f"can only access {what} with the same name as the requesting node")


def _check_csr(node: str, review: AdmissionAttributes) -> None:
    spec = (review.object or {}).get("spec") or {}
    if review.operation != "CREATE" or spec.get("signerName") not in _SIGNERS:
        return
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or "", validate=True))
    except (ValueError, binascii.Error) as error:
        raise _no(review, f"unable to parse csr: {error}") from None
    names = [a.value for a in csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [f"{PREFIX}{node}"]:
        raise _no(review, f"can only create a node CSR with CN={PREFIX}{node}")


def _no(review: AdmissionAttributes, why: str) -> StatusError:
    return status_errors.forbidden(review.plural, review.group, review.name, why)
