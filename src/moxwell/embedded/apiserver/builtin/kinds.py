"""
The table of built-in kinds: names, scope, subresources, Go type.

Defaults, validation and columns are in the other modules of this package, by kind.
"""

from dataclasses import dataclass
from typing import TypedDict, Unpack

from moxwell.embedded.apiserver.resources import ALL_VERBS

CREATE = ("create",)
_CORE, _API = "k8s.io/api/core/v1", "k8s.io/api"


@dataclass(frozen=True, slots=True)
class BuiltinKind:
    """One built-in kind."""

    group: str
    kind: str
    plural: str
    go: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    generation: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    version: str = "v1"
    group_resource: str = ""

    @property
    def storage_group_resource(self) -> str:
        return self.group_resource or (f"{self.plural}.{self.group}" if self.group else self.plural)


class BuiltinKindOptions(TypedDict, total=False):
    """Optional columns of the table."""

    categories: tuple[str, ...]
    subresources: tuple[str, ...]
    generation: bool
    verbs: tuple[str, ...]
    version: str
    group_resource: str


def _core(
    kind: str, plural: str, *short: str, cluster: bool = False, **more: Unpack[BuiltinKindOptions]
) -> BuiltinKind:
    return _row("", f"{_CORE}.{kind}", kind, plural, short, cluster, more)


def _of(
    group: str,
    package: str,
    kind: str,
    plural: str,
    *short: str,
    cluster: bool = False,
    **more: Unpack[BuiltinKindOptions],
) -> BuiltinKind:
    return _row(group, f"{_API}/{package}.{kind}", kind, plural, short, cluster, more)


def _row(
    group: str,
    go: str,
    kind: str,
    plural: str,
    short: tuple[str, ...],
    cluster: bool,
    more: BuiltinKindOptions,
) -> BuiltinKind:
    return BuiltinKind(group, kind, plural, go, not cluster, short, **more)


ALL = ("all",)
STATUS = ("status",)
SCALED = ("scale", "status")
NO_COLLECTION = tuple(v for v in ALL_VERBS if v != "deletecollection")
_RBAC, _AUTHZ, _AUTHN = "rbac.authorization.k8s.io", "authorization.k8s.io", "authentication.k8s.io"
_STORAGE, _APPS = "storage.k8s.io", "apps"

KINDS: tuple[BuiltinKind, ...] = (
    _core("Binding", "bindings", verbs=CREATE),
    _core("ConfigMap", "configmaps", "cm"),
    _core("Endpoints", "endpoints", "ep"),
    _core("Event", "events", "ev"),
    _core("LimitRange", "limitranges", "limits"),
    _core(
        "Namespace",
        "namespaces",
        "ns",
        cluster=True,
        subresources=("finalize", "status"),
        verbs=NO_COLLECTION,
    ),
    _core("Node", "nodes", "no", cluster=True, subresources=STATUS),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", subresources=STATUS),
    _core("PersistentVolume", "persistentvolumes", "pv", cluster=True, subresources=STATUS),
    _core(
        "Pod",
        "pods",
        "po",
        categories=ALL,
        generation=True,
        subresources=("binding", "eviction", "status"),
    ),
    _core("PodTemplate", "podtemplates", generation=True),
    _core(
        "ReplicationController",
        "replicationcontrollers",
        "rc",
        categories=ALL,
        subresources=SCALED,
        generation=True,
    ),
    _core("ResourceQuota", "resourcequotas", "quota", subresources=STATUS),
    _core("Secret", "secrets"),
    _core("ServiceAccount", "serviceaccounts", "sa", subresources=("token",)),
    _core("Service", "services", "svc", categories=ALL, subresources=STATUS),
    _of(_APPS, "apps/v1", "ControllerRevision", "controllerrevisions"),
    _of(
        _APPS,
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        "ds",
        categories=ALL,
        subresources=STATUS,
        generation=True,
    ),
    _of(
        _APPS,
        "apps/v1",
        "Deployment",
        "deployments",
        "deploy",
        categories=ALL,
        subresources=SCALED,
        generation=True,
    ),
    _of(
        _APPS,
        "apps/v1",
        "ReplicaSet",
        "replicasets",
        "rs",
        categories=ALL,
        subresources=SCALED,
        generation=True,
    ),
    _of(
        _APPS,
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        "sts",
        categories=ALL,
        subresources=SCALED,
        generation=True,
    ),
    _of(
        _AUTHN,
        "authentication/v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        cluster=True,
        verbs=CREATE,
    ),
    _of(_AUTHN, "authentication/v1", "TokenReview", "tokenreviews", cluster=True, verbs=CREATE),
    _of(
        _AUTHZ,
        "authorization/v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        verbs=CREATE,
    ),
    _of(
        _AUTHZ,
        "authorization/v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        cluster=True,
        verbs=CREATE,
    ),
    _of(
        _AUTHZ,
        "authorization/v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        cluster=True,
        verbs=CREATE,
    ),
    _of(
        _AUTHZ,
        "authorization/v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        cluster=True,
        verbs=CREATE,
    ),
    _of(
        "autoscaling",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "hpa",
        categories=ALL,
        subresources=STATUS,
        version="v2",
    ),
    _of(
        "batch",
        "batch/v1",
        "CronJob",
        "cronjobs",
        "cj",
        categories=ALL,
        subresources=STATUS,
        generation=True,
    ),
    _of("batch", "batch/v1", "Job", "jobs", categories=ALL, subresources=STATUS, generation=True),
    _of(
        "certificates.k8s.io",
        "certificates/v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "csr",
        cluster=True,
        subresources=("approval", "status"),
    ),
    _of("coordination.k8s.io", "coordination/v1", "Lease", "leases"),
    _of("discovery.k8s.io", "discovery/v1", "EndpointSlice", "endpointslices", generation=True),
    _of("events.k8s.io", "events/v1", "Event", "events", "ev", group_resource="events"),
    _of(
        "networking.k8s.io",
        "networking/v1",
        "IngressClass",
        "ingressclasses",
        cluster=True,
        generation=True,
    ),
    _of(
        "networking.k8s.io",
        "networking/v1",
        "Ingress",
        "ingresses",
        "ing",
        subresources=STATUS,
        generation=True,
    ),
    _of(
        "networking.k8s.io",
        "networking/v1",
        "NetworkPolicy",
        "networkpolicies",
        "netpol",
        generation=True,
    ),
    _of("node.k8s.io", "node/v1", "RuntimeClass", "runtimeclasses", cluster=True),
    _of(
        "policy",
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "pdb",
        subresources=STATUS,
        generation=True,
    ),
    _of(_RBAC, "rbac/v1", "ClusterRoleBinding", "clusterrolebindings", cluster=True),
    _of(_RBAC, "rbac/v1", "ClusterRole", "clusterroles", cluster=True),
    _of(_RBAC, "rbac/v1", "RoleBinding", "rolebindings"),
    _of(_RBAC, "rbac/v1", "Role", "roles"),
    _of(
        "scheduling.k8s.io",
        "scheduling/v1",
        "PriorityClass",
        "priorityclasses",
        "pc",
        cluster=True,
        generation=True,
    ),
    _of(_STORAGE, "storage/v1", "CSIDriver", "csidrivers", cluster=True),
    _of(_STORAGE, "storage/v1", "CSINode", "csinodes", cluster=True),
    _of(_STORAGE, "storage/v1", "CSIStorageCapacity", "csistoragecapacities"),
    _of(_STORAGE, "storage/v1", "StorageClass", "storageclasses", "sc", cluster=True),
    _of(
        _STORAGE,
        "storage/v1",
        "VolumeAttachment",
        "volumeattachments",
        cluster=True,
        subresources=STATUS,
    ),
    BuiltinKind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.CustomResourceDefinition",
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=STATUS,
        generation=True,
    ),
)
