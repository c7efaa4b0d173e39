"""Built-in kinds: defaults and validation of fields that controllers rely on."""

from apisuite.case import MERGE, case, delete, get, patch, post, status_only
from apisuite.cases.bodies import (
    APPS,
    CORE,
    DEPLOYMENTS,
    PODS,
    RBAC,
    SERVICES,
    Body,
    deployment,
    pod,
)

STORAGE = "/apis/storage.k8s.io/v1"
PVS = "/api/v1/persistentvolumes"
PVCS = f"{CORE}/persistentvolumeclaims"
STILL = ("metadata.managedFields",)
SLICES = "/apis/discovery.k8s.io/v1/namespaces/$ns/endpointslices"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def of(api: str, kind: str, name: str, **more: object) -> Body:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}


def claim(name: str, **spec: object) -> Body:
    full: Body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "no-$u",
        **spec,
    }
    return of("v1", "PersistentVolumeClaim", name, spec=full)


def volume(**spec: object) -> Body:
    full: Body = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "d.example.com", "volumeHandle": "h"},
        "storageClassName": "no-$u",
        **spec,
    }
    return of("v1", "PersistentVolume", "pv-$u", spec=full)


CASES = (
    case("a pod's defaults", post(PODS, pod("p"), drop=STILL)),
    case(
        "a pod's requests follow its limits",
        post(
            PODS,
            pod(
                "p",
                containers=[
                    {
                        "name": "a",
                        "image": "x",
                        "resources": {"limits": {"cpu": "1500m", "memory": "1024Mi"}},
                    }
                ],
            ),
            only=("spec.containers[0].resources", "status.qosClass"),
        ),
    ),
    case("a pod without containers", post(PODS, pod("p", containers=[]))),
    case(
        "a pod with a bad container", post(PODS, pod("p", containers=[{"name": "A_", "image": ""}]))
    ),
    case(
        "a pod with a bad quantity",
        post(
            PODS,
            pod(
                "p",
                containers=[{"name": "a", "image": "x", "resources": {"limits": {"cpu": "lots"}}}],
            ),
            drop=("message",),
        ),
    ),
    case(
        "a pod's image may change",
        status_only(post(PODS, pod("p"))),
        patch(
            MERGE,
            f"{PODS}/p",
            {"spec": {"containers": [{"name": "main", "image": "other"}]}},
            only=("spec.containers[0].image",),
        ),
    ),
    case(
        "a pod's node may not change",
        status_only(post(PODS, pod("p", nodeName="n-$u"))),
        patch(
            MERGE,
            f"{PODS}/p",
            {"spec": {"nodeName": "m"}},
            only=("reason", "code", "details.causes[0].field"),
        ),
        delete(f"{PODS}/p?gracePeriodSeconds=0", show="status"),
    ),
    case("a pod without its service account", post(PODS, pod("p", serviceAccountName="nope"))),
    case(
        "a pod of a priority class that is not there",
        post(PODS, pod("p", priorityClassName="nope")),
    ),
    case(
        "a pod with volumes and probes",
        post(
            PODS,
            pod(
                "p",
                volumes=[
                    {"name": "v", "configMap": {"name": "c"}},
                    {"name": "s", "secret": {"secretName": "s"}},
                    {"name": "e", "emptyDir": {}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
                ],
                containers=[
                    {
                        "name": "a",
                        "image": "x:1",
                        "ports": [{"containerPort": 80}],
                        "readinessProbe": {"httpGet": {"port": 80}},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "env": [
                            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                        ],
                    }
                ],
            ),
            only=("spec.volumes", "spec.containers"),
        ),
    ),
    case(
        "a deployment's defaults", post(DEPLOYMENTS, deployment("d", None, paused=True), drop=STILL)
    ),
    case(
        "a deployment whose selector does not match",
        post(DEPLOYMENTS, deployment("d", 0, selector={"matchLabels": {"app": "y"}})),
    ),
    case(
        "a deployment without a selector",
        post(
            DEPLOYMENTS,
            deployment("d", 0, selector=None),
            drop=("message", "details.causes.*.message"),
        ),
    ),
    case(
        "a deployment's selector is fixed",
        status_only(post(DEPLOYMENTS, deployment("d", 0))),
        patch(
            MERGE,
            f"{DEPLOYMENTS}/d",
            {
                "spec": {
                    "selector": {"matchLabels": {"app": "z"}},
                    "template": {"metadata": {"labels": {"app": "z"}}},
                }
            },
            drop=("message", "details.causes.*.message"),
        ),
    ),
    case(
        "a stateful set's defaults",
        post(
            f"{APPS}/statefulsets",
            of(
                "apps/v1",
                "StatefulSet",
                "s",
                spec={**deployment("s", 0)["spec"], "serviceName": "x"},
            ),
            drop=(*STILL, "status.collisionCount", "spec.template"),
        ),
    ),
    case(
        "a daemon set's defaults",
        post(
            f"{APPS}/daemonsets",
            of("apps/v1", "DaemonSet", "d", spec=deployment("d", None)["spec"]),
            drop=(*STILL, "spec.template"),
        ),
    ),
    case(
        "a service of a cluster address",
        post(
            SERVICES,
            of(
                "v1",
                "Service",
                "s",
                spec={"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]},
            ),
            drop=(*STILL, "spec.clusterIP", "spec.clusterIPs"),
        ),
    ),
    case(
        "a service of a balancer",
        post(
            SERVICES,
            of(
                "v1",
                "Service",
                "s",
                spec={
                    "type": "LoadBalancer",
                    "loadBalancerClass": "example.com/x",
                    "selector": {"a": "b"},
                    "ports": [{"port": 80}],
                },
            ),
            only=(
                "spec.type",
                "spec.externalTrafficPolicy",
                "spec.allocateLoadBalancerNodePorts",
                "spec.loadBalancerClass",
                "status",
            ),
        ),
        patch(
            MERGE,
            f"{SERVICES}/s/status",
            {"status": {"loadBalancer": {"ingress": [{"ip": "10.9.8.7"}]}}},
            only=("status",),
        ),
    ),
    case(
        "a service without ports",
        post(SERVICES, of("v1", "Service", "s", spec={"selector": {"a": "b"}})),
    ),
    case(
        "a service with ports that lack names",
        post(
            SERVICES,
            of(
                "v1",
                "Service",
                "s",
                spec={"clusterIP": "None", "ports": [{"port": 80}, {"port": 81}]},
            ),
        ),
    ),
    case(
        "a service's class is fixed",
        status_only(
            post(
                SERVICES,
                of(
                    "v1",
                    "Service",
                    "s",
                    spec={
                        "type": "LoadBalancer",
                        "loadBalancerClass": "example.com/x",
                        "ports": [{"port": 80}],
                    },
                ),
            )
        ),
        patch(
            MERGE,
            f"{SERVICES}/s",
            {"spec": {"loadBalancerClass": "example.com/y"}},
            drop=("details.causes.*.message", "message"),
        ),
    ),
    case("a claim's defaults", post(PVCS, claim("c"), drop=STILL)),
    case("a claim with an unknown access mode", post(PVCS, claim("c", accessModes=["Twice"]))),
    case(
        "a claim with access modes that exclude each other",
        post(PVCS, claim("c", accessModes=["ReadWriteOncePod", "ReadWriteOnce"])),
    ),
    case("a claim without a size", post(PVCS, claim("c", resources={}))),
    case(
        "a claim's class is fixed",
        status_only(post(PVCS, claim("c"))),
        patch(
            MERGE,
            f"{PVCS}/c",
            {"spec": {"storageClassName": "other"}},
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "a claim that is used stays",
        status_only(post(PVCS, claim("c"))),
        get(f"{PVCS}/c", only=("metadata.finalizers",)),
        delete(f"{PVCS}/c", only=("metadata.name",)),
        get(f"{PVCS}/c", until=("status", 404)),
    ),
    case(
        "a volume's defaults",
        post(PVS, volume(), drop=(*STILL, "metadata.finalizers", "status")),
        delete(f"{PVS}/pv-$u", show="status"),
        get(f"{PVS}/pv-$u", until=("status", 404)),
    ),
    case("a volume without a source", post(PVS, volume(csi=None))),
    case(
        "a volume's source is fixed",
        status_only(post(PVS, volume())),
        patch(
            MERGE,
            f"{PVS}/pv-$u",
            {"spec": {"csi": {"volumeHandle": "other"}}},
            only=("reason", "code", "details.causes[0].field"),
        ),
        delete(f"{PVS}/pv-$u", show="status"),
    ),
    case(
        "a storage class",
        post(
            f"{STORAGE}/storageclasses",
            of(
                "storage.k8s.io/v1",
                "StorageClass",
                "sc-$u",
                provisioner="d.example.com",
                parameters={"a": "b"},
            ),
            drop=STILL,
        ),
        delete(f"{STORAGE}/storageclasses/sc-$u"),
    ),
    case(
        "a storage class's parameters are fixed",
        status_only(
            post(
                f"{STORAGE}/storageclasses",
                of("storage.k8s.io/v1", "StorageClass", "sc-$u", provisioner="d.example.com"),
            )
        ),
        patch(MERGE, f"{STORAGE}/storageclasses/sc-$u", {"parameters": {"a": "b"}}),
        delete(f"{STORAGE}/storageclasses/sc-$u", show="status"),
    ),
    case(
        "a CSI driver's defaults",
        post(
            f"{STORAGE}/csidrivers",
            of("storage.k8s.io/v1", "CSIDriver", "d-$u.example.com", spec={}),
            drop=STILL,
        ),
        delete(f"{STORAGE}/csidrivers/d-$u.example.com", show="status"),
    ),
    case(
        "a CSI node",
        post(
            f"{STORAGE}/csinodes",
            of(
                "storage.k8s.io/v1",
                "CSINode",
                "n-$u",
                spec={
                    "drivers": [
                        {
                            "name": "d",
                            "nodeID": "1",
                            "topologyKeys": ["zone"],
                            "allocatable": {"count": 5},
                        }
                    ]
                },
            ),
            drop=STILL,
        ),
        delete(f"{STORAGE}/csinodes/n-$u", show="status"),
    ),
    case(
        "a volume attachment",
        post(
            f"{STORAGE}/volumeattachments",
            of(
                "storage.k8s.io/v1",
                "VolumeAttachment",
                "va-$u",
                spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            ),
            drop=STILL,
        ),
        patch(
            MERGE,
            f"{STORAGE}/volumeattachments/va-$u/status",
            {"status": {"attached": True, "attachmentMetadata": {"a": "b"}}},
            drop=STILL,
        ),
        patch(
            MERGE,
            f"{STORAGE}/volumeattachments/va-$u",
            {"spec": {"nodeName": "m"}},
            only=("reason", "code"),
        ),
        delete(f"{STORAGE}/volumeattachments/va-$u", show="status"),
    ),
    case(
        "storage capacity",
        post(
            f"{STORAGE}/namespaces/$ns/csistoragecapacities",
            {
                **of("storage.k8s.io/v1", "CSIStorageCapacity", "c"),
                "storageClassName": "x",
                "capacity": "1024Mi",
                "nodeTopology": {"matchLabels": {"zone": "a"}},
            },
            drop=STILL,
        ),
    ),
    case(
        "a priority class",
        post(
            PRIORITIES,
            {**of("scheduling.k8s.io/v1", "PriorityClass", "p-$u"), "value": 7},
            drop=STILL,
        ),
        patch(MERGE, f"{PRIORITIES}/p-$u", {"value": 8}),
        delete(f"{PRIORITIES}/p-$u", show="status"),
    ),
    case(
        "a priority class of the system",
        post(PRIORITIES, {**of("scheduling.k8s.io/v1", "PriorityClass", "system-$u"), "value": 7}),
    ),
    case(
        "a node's defaults",
        post(
            "/api/v1/nodes",
            of("v1", "Node", "n-$u", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}),
            only=("spec", "metadata.labels"),
        ),
        delete("/api/v1/nodes/n-$u", show="status"),
    ),
    case(
        "an endpoint slice",
        post(
            SLICES,
            {
                **of("discovery.k8s.io/v1", "EndpointSlice", "e"),
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.9"]}],
                "ports": [{"port": 80}],
            },
            drop=STILL,
        ),
    ),
    case(
        "an endpoint slice's type is fixed",
        status_only(
            post(
                SLICES,
                {
                    **of("discovery.k8s.io/v1", "EndpointSlice", "e"),
                    "addressType": "IPv4",
                    "endpoints": [],
                },
            )
        ),
        patch(
            MERGE,
            f"{SLICES}/e",
            {"addressType": "IPv6"},
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "a role",
        post(
            f"{RBAC}/namespaces/$ns/roles",
            {
                **of("rbac.authorization.k8s.io/v1", "Role", "r"),
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
            drop=STILL,
        ),
    ),
    case(
        "a role binding",
        post(
            f"{RBAC}/namespaces/$ns/rolebindings",
            {
                **of("rbac.authorization.k8s.io/v1", "RoleBinding", "r"),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "User", "name": "me"},
                    {"kind": "ServiceAccount", "name": "default", "namespace": "$ns"},
                ],
            },
            drop=STILL,
        ),
        patch(MERGE, f"{RBAC}/namespaces/$ns/rolebindings/r", {"roleRef": {"name": "s"}}),
    ),
    case(
        "a role without verbs",
        post(
            f"{RBAC}/namespaces/$ns/roles",
            {
                **of("rbac.authorization.k8s.io/v1", "Role", "r"),
                "rules": [{"apiGroups": [""], "resources": ["pods"]}],
            },
        ),
    ),
    case(
        "quantities are written in their canonical form",
        post(
            PVCS,
            claim("c", resources={"requests": {"storage": "1024Mi"}}),
            only=("spec.resources",),
        ),
    ),
)
