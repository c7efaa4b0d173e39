"""
The manifests of the operator, for a clusterctl release and for the management cluster. Pure.

They are a Namespace, CRDs with their conversion webhook, the validating webhook, least-privilege
RBAC, and the Deployment with a container named ``manager``. The only variable is
``MOXWELL_CONFIG_B64``, the file with the regions in base64. cert-manager is not needed.
"""

import base64
from collections.abc import Mapping
from typing import Any

from moxwell import __version__
from moxwell.api import crd
from moxwell.api.infra.convert import KINDS
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP as PROVIDER

NAMESPACE, NAME = "moxwell-system", "moxwell-controller-manager"
IMAGE = f"ghcr.io/moxwell/moxwell:v{__version__}"
SERVICE = "moxwell-webhook-service"
VALIDATING = "moxwell-validating-webhook-configuration"
CERTIFICATE = "moxwell-webhook-cert"
LABELS = {"cluster.x-k8s.io/provider": "infrastructure-moxwell"}
INFRA, CAPI, IPAM = (
    "infrastructure.cluster.x-k8s.io",
    "cluster.x-k8s.io",
    "ipam.cluster.x-k8s.io",
)
READ = ["get", "list", "watch"]
Json = dict[str, Any]


def named(kind: str, api: str, name: str, *, spaced: bool = True, **rest: Any) -> Json:
    """An object of the release, with its labels."""
    meta: Json = {"name": name, "labels": dict(LABELS)}
    if spaced:
        meta["namespace"] = NAMESPACE
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def rule(
    group: str, resources: list[str], verbs: list[str], names: list[str] | None = None
) -> Json:
    found: Json = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**found, "resourceNames": names} if names else found


def cluster_rules() -> list[Json]:
    """The ClusterRole rules of the manager."""
    ours = sorted({k.resource.plural for k in KINDS})
    grants = rule("gateway.networking.k8s.io", ["referencegrants"], ["list"])
    crds = sorted({k.resource.group_resource for k in KINDS})
    return [
        rule(INFRA, ours, [*READ, "patch", "update"]),
        rule(INFRA, ["proxmoxmachines"], ["claim"]),  # checked by the policy moxwell-claims
        grants,
        rule(INFRA, [f"{p}/status" for p in ours], ["get", "patch", "update"]),
        rule(INFRA, [f"{p}/finalizers" for p in ours], ["update"]),
        rule(PROVIDER, ["proxmoxtemplates"], [*READ, "patch", "update"]),
        rule(PROVIDER, ["proxmoxtemplates/status"], ["get", "patch", "update"]),
        rule(PROVIDER, ["proxmoxtemplates/finalizers"], ["update"]),
        rule(CAPI, ["clusters", "machines"], READ),
        rule(IPAM, ["ipaddressclaims"], [*READ, "create", "delete", "patch"]),
        rule(IPAM, ["ipaddresses", "globalinclusterippools"], READ),
        rule(IPAM, ["inclusterippools"], [*READ, "create", "delete", "patch"]),
        rule("", ["secrets"], ["get", "patch"]),  # bootstrap data and credentials, by name
        rule("events.k8s.io", ["events"], ["create", "patch"]),
        rule("", ["events"], ["create", "patch"]),
        rule("apiextensions.k8s.io", ["customresourcedefinitions"], ["get", "patch"], crds),
        rule(
            "admissionregistration.k8s.io",
            ["validatingwebhookconfigurations"],
            ["get", "patch"],
            [VALIDATING],
        ),
    ]


def own_rules() -> list[Json]:
    """The Role rules of the manager in its own namespace."""
    return [
        rule("coordination.k8s.io", ["leases"], [*READ, "create", "delete", "patch", "update"]),
        rule("", ["secrets"], ["get", "create", "patch", "update"]),
    ]


def bound(kind: str, name: str, role: str, *, spaced: bool) -> Json:
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name}
    api = "rbac.authorization.k8s.io/v1"
    return named(kind, api, name, spaced=spaced, roleRef=ref, subjects=[subject])


def access() -> list[Json]:
    api = "rbac.authorization.k8s.io/v1"
    return [
        named("ServiceAccount", "v1", NAME),
        named("ClusterRole", api, "moxwell-manager", spaced=False, rules=cluster_rules()),
        bound("ClusterRoleBinding", "moxwell-manager", "ClusterRole", spaced=False),
        named("Role", api, "moxwell-own", rules=own_rules()),
        bound("RoleBinding", "moxwell-own", "Role", spaced=True),
    ]


def webhooks() -> list[Json]:
    rules = [
        {
            "apiGroups": [INFRA],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": sorted({k.resource.plural for k in KINDS}),
        }
    ]
    where = {"service": {"name": SERVICE, "namespace": NAMESPACE, "path": "/validate"}}
    hook = {
        "name": "validate.infrastructure.moxwell.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": where,
        "failurePolicy": "Fail",
        "matchPolicy": "Exact",
        "rules": rules,
        "sideEffects": "None",
    }
    api = "admissionregistration.k8s.io/v1"
    kind = "ValidatingWebhookConfiguration"
    ports = [{"port": 443, "targetPort": "webhooks"}]
    service = {"ports": ports, "selector": {"control-plane": NAME}}
    return [
        named("Service", "v1", SERVICE, spec=service),
        named(kind, api, VALIDATING, spaced=False, webhooks=[hook]),
    ]


CLAIM_UNCHANGED = (
    "has(object.spec.claim)"
    " ? oldObject != null && has(oldObject.spec.claim)"
    " && object.spec.claim == oldObject.spec.claim"
    " : oldObject == null || !has(oldObject.spec.claim)"
)
MAY_CLAIM = f"authorizer.group('{INFRA}').resource('proxmoxmachines').check('claim').allowed()"


def claim_policy() -> list[Json]:
    """Only the manager, and accounts with the verb ``claim`` in all namespaces, write claims."""
    hub = next(
        k.resource for k in KINDS if k.declared.storage and k.resource.plural == "proxmoxmachines"
    )
    rules = {
        "apiGroups": [INFRA],
        "apiVersions": [hub.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [hub.plural],
    }
    message = (
        "spec.claim is written by the controller; to move machines between management clusters, "
        "use an account with the verb claim on proxmoxmachines in all namespaces"
    )
    validation = {
        "expression": f"({CLAIM_UNCHANGED}) || {MAY_CLAIM}",
        "message": message,
        "reason": "Forbidden",
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rules]},
        "validations": [validation],
    }
    api, name = "admissionregistration.k8s.io/v1", "moxwell-claims"
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        named("ValidatingAdmissionPolicy", api, name, spaced=False, spec=spec),
        named("ValidatingAdmissionPolicyBinding", api, name, spaced=False, spec=binding),
    ]


def container() -> Json:
    probe = {"port": "health", "scheme": "HTTP"}
    return {
        "name": "manager",
        "image": IMAGE,  # clusterctl's `images:` overrides it
        "args": [
            "operator",
            "--controllers=infra",
            "--config=/etc/proxmox/config.yaml",
            "--namespace=",  # all namespaces
            f"--leader-elect-resource-namespace={NAMESPACE}",
        ],
        "ports": [
            {"name": "webhooks", "containerPort": 9443},
            {"name": "health", "containerPort": 8081},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", **probe}},
        "readinessProbe": {"httpGet": {"path": "/readyz", **probe}},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/proxmox", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # OpenSSL reads keys from files only
        ],
    }


def deployment() -> list[Json]:
    labels = {"control-plane": NAME, **LABELS}
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container()],
        "volumes": [
            {"name": "config", "secret": {"secretName": "moxwell-config"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": 30,
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"control-plane": NAME}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    secret = named("Secret", "v1", "moxwell-config", type="Opaque")
    secret["data"] = {"config.yaml": "${MOXWELL_CONFIG_B64}"}
    return [secret, named("Deployment", "apps/v1", NAME, spec=spec)]


def components() -> list[Json]:
    """All objects, in the order in which they are applied."""
    hook = crd.ConversionWebhook(service=SERVICE, namespace=NAMESPACE)
    space = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = named("Namespace", "v1", NAMESPACE, spaced=False)
    namespace["metadata"]["labels"] |= space
    return [
        namespace,
        *crd.crds(KINDS, hook),
        *access(),
        *webhooks(),
        *claim_policy(),
        *deployment(),
    ]


def configured(files: Mapping[str, str], image: str = "") -> tuple[Json, ...]:
    """The components with the files of the configuration and, if given, another image."""
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return tuple(_configured(obj, data, image) for obj in components())


def _configured(obj: Json, data: Mapping[str, str], image: str) -> Json:
    if obj["kind"] == "Secret":
        return {**obj, "data": dict(data)}
    if obj["kind"] == "Deployment" and image:
        for each in obj["spec"]["template"]["spec"]["containers"]:
            each["image"] = image
    return obj
