"""kubectl on the cluster: discovery, explain, access, nodes."""

from apisuite.case import case, kubectl

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n-$u, labels: {zone: a}}
spec: {providerID: "x://1"}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  automountServiceAccountToken: false
  nodeName: n-$u
  containers: [{name: main, image: registry.example/x:1}]
"""
GONE = kubectl("delete node n-$u", show="code")

STORAGE_CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: sc-$u
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: example.com/none
"""
CASES = (
    case(
        "the default storage class is marked",
        kubectl("apply -f -", STORAGE_CLASS),
        kubectl("get storageclass sc-$u"),
        kubectl("delete storageclass sc-$u"),
    ),
    case("api versions", kubectl("api-versions", show="code")),
    case(
        "api resources of a group",
        kubectl("api-resources --api-group=coordination.k8s.io --no-headers"),
    ),
    case(
        "api resources of apps",
        kubectl("api-resources --api-group=apps --no-headers -o wide", show="code"),
    ),
    case("explain a pod", kubectl("explain pod.spec.nodeName"), kubectl("explain configmap")),
    case(
        "explain deeper",
        kubectl("explain deployment.spec.strategy"),
        kubectl("explain lease.spec"),
        kubectl("explain pod.nope"),
    ),
    case("explain a kind nobody knows", kubectl("explain nopes")),
    case("the version", kubectl("version", show="code")),
    case("cluster info", kubectl("cluster-info", show="code")),
    case("may I", kubectl("auth can-i create pods"), kubectl("auth can-i '*' '*'")),
    case(
        "may nobody",
        kubectl("create serviceaccount bot"),
        kubectl("auth can-i --list", show="code"),
    ),
    case("who am I", kubectl("auth whoami -o jsonpath={.status.userInfo.groups}")),
    case(
        "a node",
        kubectl("create -f -", NODE),
        kubectl("get node n-$u -o jsonpath={.spec.providerID}"),
        kubectl(
            "get node n-$u --no-headers -o custom-columns=N:.metadata.name,Z:.metadata.labels.zone"
        ),
        GONE,
    ),
    case(
        "cordon and uncordon",
        kubectl("create -f -", NODE),
        kubectl("cordon n-$u"),
        kubectl("cordon n-$u"),
        kubectl("get node n-$u -o jsonpath={.spec.unschedulable}"),
        kubectl("uncordon n-$u"),
        GONE,
    ),
    case(
        "taint",
        kubectl("create -f -", NODE),
        kubectl("taint node n-$u a=b:NoSchedule"),
        kubectl("taint node n-$u a=b:NoSchedule"),
        kubectl("taint node n-$u a-"),
        GONE,
    ),
    case(
        "drain",
        kubectl("create -f -", NODE),
        kubectl("create -f -", POD),
        kubectl("drain n-$u --force --timeout=3s --grace-period=0 --pod-selector=app=none"),
        GONE,
    ),
    case(
        "exec is refused",
        kubectl("create -f -", POD),
        kubectl("exec p -- ls", show="code"),
        kubectl("logs p", show="code"),
    ),
    case(
        "get all",
        kubectl("create service clusterip s --tcp=80 --clusterip=None"),
        kubectl("get all -o name"),
    ),
    case(
        "across namespaces",
        kubectl("create configmap across-$u"),
        kubectl("get cm -A --field-selector metadata.name=across-$u"),
    ),
    case("no namespace", kubectl("get cm -n no-$u")),
    case(
        "kustomize in the middle",
        kubectl("create configmap k --from-literal=a=b -o json --dry-run=client"),
    ),
)
