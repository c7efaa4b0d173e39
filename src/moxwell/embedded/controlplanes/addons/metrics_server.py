"""metrics-server: usage of nodes and pods for ``kubectl top`` and autoscaling. Pure."""

from typing import Any

from moxwell.embedded.controlplanes.addons.objects import (
    RBAC,
    SPACE,
    Json,
    account,
    binding,
    make_object,
    role,
    workload,
)

NAME, ROLE, VERSION = "metrics-server", "system:metrics-server", "v0.7.2"
GROUP_VERSION, PORT = "v1beta1.metrics.k8s.io", 10250
FLAGS = (
    "--cert-dir=/tmp",
    f"--secure-port={PORT}",
    "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
    "--kubelet-use-node-status-port",
    "--kubelet-insecure-tls",  # kubelets sign their serving certificates themselves
    "--metric-resolution=15s",
)


def metrics_server(repository: str) -> tuple[Json, ...]:
    """All objects."""
    return (
        *_rights(),
        *metrics_workload(repository, FLAGS),
        make_object(
            "apiregistration.k8s.io/v1", "APIService", GROUP_VERSION, space="", spec=_api()
        ),
    )


def metrics_workload(repository: str, flags: tuple[str, ...]) -> tuple[Json, ...]:
    """The account, the Deployment and its Service."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}]
    service = {"selector": {"k8s-app": NAME}, "ports": ports}
    return (
        account(NAME),
        workload("Deployment", NAME, NAME, _pod(repository, flags), replicas=1),
        make_object("v1", "Service", NAME, spec=service),
    )


def _pod(repository: str, flags: tuple[str, ...]) -> Json:
    def probe(path: str, **rest: Any) -> Json:
        return {"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}, **rest}

    container = {
        "name": NAME,
        "image": f"{repository}/metrics-server/metrics-server:{VERSION}",
        "args": list(flags),
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/livez", periodSeconds=10, failureThreshold=3),
        "readinessProbe": probe("/readyz", initialDelaySeconds=20, periodSeconds=10),
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 1000,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def _rights() -> tuple[Json, ...]:
    """Its own rights, the checks of its clients, and the right to read metrics for users."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": SPACE}
    reader = "extension-apiserver-authentication-reader"
    ref = {"apiGroup": RBAC, "kind": "Role", "name": reader}
    read = ["get", "list", "watch"]
    users = role("system:aggregated-metrics-reader", ("metrics.k8s.io", ["pods", "nodes"], read))
    users["metadata"]["labels"] = {
        f"{RBAC}/aggregate-to-{name}": "true" for name in ("admin", "edit", "view")
    }
    return (
        users,
        role(ROLE, ("", ["nodes/metrics"], ["get"]), ("", ["pods", "nodes"], read)),
        binding(ROLE, ROLE, NAME),
        binding("metrics-server:system:auth-delegator", "system:auth-delegator", NAME),
        make_object(
            f"{RBAC}/v1",
            "RoleBinding",
            "metrics-server-auth-reader",
            roleRef=ref,
            subjects=[subject],
        ),
    )


def _api() -> Json:
    return {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"name": NAME, "namespace": SPACE},
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,  # its certificate is made anew at each start
    }
