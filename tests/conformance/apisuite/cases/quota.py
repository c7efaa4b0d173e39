"""ResourceQuota and LimitRange."""

from typing import Any

from apisuite.case import (
    MERGE,
    TABLE,
    ApiRequest,
    Case,
    Step,
    case,
    delete,
    get,
    patch,
    post,
    settle,
    status_only,
)
from apisuite.cases.bodies import (
    ACCOUNTS,
    CM,
    CORE,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    Body,
    deployment,
    pod,
)

QUOTAS, RANGES = f"{CORE}/resourcequotas", f"{CORE}/limitranges"
CLAIMS = f"{CORE}/persistentvolumeclaims"
READY = get(f"{ACCOUNTS}/default", until=("status", 200), show="status")
ROOT = get(f"{CM}/kube-root-ca.crt", until=("status", 200), show="nothing")  # it is counted as well
COUNTED = ("status.hard", "status.used")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
PROBE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "probe"}}
PROBED = "count/leases.coordination.k8s.io"
REJECTED = (
    'leases.coordination.k8s.io "probe" is forbidden: exceeded quota: probe, '
    f"requested: {PROBED}=1, used: {PROBED}=0, limited: {PROBED}=0"
)


def _key(name: str) -> str:
    return name.replace(".", "\\.")


def _quota(name: str, hard: Body, **spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
    }


def quota(hard: Body, **spec: Any) -> tuple[Step, ...]:
    """
    A quota that the quota admission plugin has observed.

    A kube-apiserver's admission plugin reads quotas from an informer, which lags behind; until it
    sees the quota, objects are admitted uncounted. Informer events are ordered, so a probe quota
    created later that rejects a dry run proves that the first quota and its status are observed.
    """
    first = min(hard)
    return (
        status_only(post(QUOTAS, _quota("q", hard, **spec))),
        settle(get(f"{QUOTAS}/q"), f"status.hard.{_key(first)}", hard[first]),
        status_only(post(QUOTAS, _quota("probe", {PROBED: "0"}))),
        settle(post(f"{LEASES}?dryRun=All", PROBE), "message", REJECTED),
    )


def used(**amounts: str) -> ApiRequest:
    """The quota after it has counted this usage."""
    name, value = next(iter(amounts.items()))
    return get(f"{QUOTAS}/q", until=(f"status.used.{_key(name)}", value), only=COUNTED)


def limits(*items: Body) -> ApiRequest:
    return post(
        RANGES,
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "l"},
            "spec": {"limits": list(items)},
        },
        only=("spec",),
    )


def pod_requesting(name: str, requests: Body | None = None, limits: Body | None = None) -> Body:
    parts = (("requests", requests), ("limits", limits))
    resources = {key: value for key, value in parts if value}
    container = {"name": "main", "image": "registry.example/x:1", "resources": resources}
    return pod(name, containers=[container])


def claim(name: str, size: str, **spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "slow",
            **spec,
        },
    }


def configmap(name: str) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def service(name: str, kind: str = "ClusterIP", ports: int = 1) -> Body:
    listed = [{"name": f"p{n}", "port": 80 + n} for n in range(ports)]
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    return {**head, "spec": {"type": kind, "ports": listed, "selector": {"app": "x"}}}


SMALL = {"cpu": "100m", "memory": "64Mi"}
SHOWN = ("spec.containers", "metadata.annotations", "status.qosClass")


def bounded(name: str, item: Body, body: Body) -> Case:
    return case(name, READY, limits(item), post(PODS, body, drop=("metadata.managedFields",)))


CASES = (
    case(
        "one object too many",
        ROOT,
        *quota({"count/configmaps": "3", "configmaps": "2"}),
        status_only(post(CM, configmap("a"))),
        post(CM, configmap("b")),
        used(configmaps="2"),
    ),
    case(
        "secrets are counted under their own name",
        *quota({"secrets": "1"}),
        status_only(
            post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
        ),
        post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}),
        used(secrets="1"),
    ),
    case(
        "kinds of other groups are counted by their full name",
        *quota({"count/deployments.apps": "1"}),
        status_only(post(DEPLOYMENTS, deployment("a", 0))),
        post(DEPLOYMENTS, deployment("b", 0)),
    ),
    case(
        "what is deleted makes room",
        ROOT,
        *quota({"configmaps": "2"}),
        status_only(post(CM, configmap("a"))),
        status_only(post(CM, configmap("b"))),
        status_only(delete(f"{CM}/a")),
        used(configmaps="1"),
        status_only(post(CM, configmap("b"))),
    ),
    case(
        "pods beyond their number",
        READY,
        *quota({"pods": "1"}),
        status_only(post(PODS, pod_requesting("a"))),
        post(PODS, pod_requesting("b")),
        used(pods="1"),
    ),
    case(
        "more requested than granted",
        READY,
        *quota({"requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "2"}),
        status_only(
            post(PODS, pod_requesting("a", {"cpu": "600m", "memory": "512Mi"}, {"cpu": "1"}))
        ),
        post(PODS, pod_requesting("b", {"cpu": "600m", "memory": "1Gi"}, {"cpu": "1"})),
        post(PODS, pod_requesting("c", {"cpu": "100m", "memory": "128Mi"}, {"cpu": "1500m"})),
        status_only(
            post(PODS, pod_requesting("d", {"cpu": "400m", "memory": "512Mi"}, {"cpu": "1"}))
        ),
        used(**{"requests.cpu": "1"}),
    ),
    case(
        "cpu means what is requested",
        READY,
        *quota({"cpu": "1", "memory": "1Gi"}),
        post(PODS, pod_requesting("a", {"cpu": "2", "memory": "1Mi"})),
    ),
    case(
        "a container that does not say what the quota counts",
        READY,
        *quota({"requests.cpu": "1", "limits.memory": "1Gi"}),
        post(PODS, pod_requesting("a")),
        post(PODS, pod_requesting("b", {"cpu": "100m"})),
    ),
    case(
        "init containers count by the greediest",
        READY,
        *quota({"requests.cpu": "1"}),
        post(
            PODS,
            pod(
                "a",
                containers=[
                    {"name": "m", "image": "x.example/x", "resources": {"requests": SMALL}}
                ],
                initContainers=[
                    {"name": "i", "image": "x.example/x", "resources": {"requests": {"cpu": "2"}}}
                ],
            ),
        ),
    ),
    case(
        "a dry run is refused and counts nothing",
        ROOT,
        *quota({"configmaps": "2"}),
        status_only(post(f"{CM}?dryRun=All", configmap("a"))),
        status_only(post(CM, configmap("b"))),
        post(f"{CM}?dryRun=All", configmap("c")),
    ),
    case(
        "services and their node ports",
        *quota({"services": "2", "services.nodeports": "1", "services.loadbalancers": "0"}),
        status_only(post(SERVICES, service("a", "NodePort"))),
        post(SERVICES, service("b", "NodePort")),
        post(SERVICES, service("c", "LoadBalancer")),
        status_only(post(SERVICES, service("d"))),
        post(SERVICES, service("e")),
        used(services="2"),
    ),
    case(
        "a service that becomes more",
        *quota({"services.nodeports": "1"}),
        status_only(post(SERVICES, service("a", "ClusterIP", 2))),
        patch(MERGE, f"{SERVICES}/a", {"spec": {"type": "NodePort"}}),
    ),
    case(
        "storage, in all and of a class",
        *quota(
            {
                "requests.storage": "10Gi",
                "persistentvolumeclaims": "3",
                "slow.storageclass.storage.k8s.io/requests.storage": "5Gi",
            }
        ),
        status_only(post(CLAIMS, claim("a", "4Gi"))),
        post(CLAIMS, claim("b", "2Gi")),
        post(CLAIMS, claim("c", "7Gi", storageClassName="fast")),
        status_only(post(CLAIMS, claim("d", "6Gi", storageClassName="fast"))),
        used(persistentvolumeclaims="2"),
    ),
    case(
        "a scope for pods of best effort",
        READY,
        *quota({"pods": "1"}, scopes=["BestEffort"]),
        status_only(post(PODS, pod_requesting("a", SMALL))),
        status_only(post(PODS, pod_requesting("b"))),
        post(PODS, pod_requesting("c")),
        status_only(post(PODS, pod_requesting("d", SMALL))),
    ),
    case(
        "a scope for pods that end",
        READY,
        *quota({"pods": "1"}, scopes=["Terminating"]),
        status_only(post(PODS, pod_requesting("a"))),
        status_only(
            post(
                PODS,
                {**(p := pod_requesting("b")), "spec": {**p["spec"], "activeDeadlineSeconds": 9}},
            )
        ),
        post(
            PODS, {**(p := pod_requesting("c")), "spec": {**p["spec"], "activeDeadlineSeconds": 9}}
        ),
    ),
    case(
        "the table of a quota",
        READY,
        *quota({"requests.cpu": "1", "pods": "3", "limits.cpu": "2"}),
        status_only(post(PODS, pod_requesting("a", {"cpu": "250m"}, {"cpu": "1"}))),
        used(pods="1"),
        get(
            f"{QUOTAS}/q", headers={"Accept": TABLE}, only=("rows[0].cells[1]", "rows[0].cells[2]")
        ),
    ),
    case(
        "a limit range fills itself in",
        limits({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "8Mi"}}),
        get(f"{RANGES}/l", only=("spec",)),
    ),
    case(
        "containers get what the namespace gives",
        READY,
        limits(
            {
                "type": "Container",
                "default": {"cpu": "500m", "memory": "128Mi"},
                "defaultRequest": SMALL,
            }
        ),
        post(PODS, pod_requesting("a"), only=SHOWN),
        post(PODS, pod_requesting("b", {"cpu": "200m"}), only=SHOWN),
        post(PODS, pod_requesting("c", None, {"cpu": "300m"}), only=SHOWN),
    ),
    bounded(
        "a container below the least",
        {"type": "Container", "min": {"cpu": "200m"}},
        pod_requesting("a", {"cpu": "100m"}),
    ),
    bounded(
        "a container above the most",
        {"type": "Container", "max": {"memory": "1Gi"}},
        pod_requesting("a", None, {"memory": "2Gi"}),
    ),
    bounded(
        "a request above the most",
        {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}},
        pod_requesting("a", {"cpu": "900m"}, {"cpu": "3"}),
    ),
    bounded(
        "a limit too far from its request",
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        pod_requesting("a", {"cpu": "100m"}, {"cpu": "500m"}),
    ),
    bounded(
        "a limit without its request",
        {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}},
        pod_requesting("a", {"cpu": "100m"}, {"cpu": "500m"}),
    ),
    bounded(
        "a whole pod above the most",
        {"type": "Pod", "max": {"cpu": "1"}},
        pod_requesting("a", None, {"cpu": "2"}),
    ),
    bounded(
        "a whole pod that does not say",
        {"type": "Pod", "max": {"cpu": "1"}},
        pod_requesting("a"),
    ),
    case(
        "a claim too small and too large",
        limits(
            {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "4Gi"}}
        ),
        post(CLAIMS, claim("a", "512Mi")),
        post(CLAIMS, claim("b", "5Gi")),
        status_only(post(CLAIMS, claim("c", "4Gi"))),
    ),
    case(
        "what is given is counted",
        READY,
        limits({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}),
        *quota({"requests.cpu": "1500m"}),
        status_only(post(PODS, pod_requesting("a"))),
        post(PODS, pod_requesting("b")),
        used(**{"requests.cpu": "1"}),
    ),
)
