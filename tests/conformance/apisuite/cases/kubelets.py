"""
The Node authorizer and NodeRestriction: what a kubelet may read and write.

The admin impersonates the kubelets of two nodes; pods are bound to them by ``spec.nodeName``. Random
requests are reproducible by seed.
"""

import random
from dataclasses import replace
from typing import Any

from apisuite.case import (
    MERGE,
    ApiRequest,
    Case,
    Step,
    case,
    delete,
    get,
    patch,
    post,
    settle,
)
from apisuite.cases.access import OTHERS, review
from apisuite.cases.bodies import ACCOUNTS, CM, PODS, SECRETS, Body, cm, pod

NODES, VOLUMES = "/api/v1/nodes", "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/$ns/persistentvolumeclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MINE, THEIRS = "mine-$u", "theirs-$u"
MIRROR = "kubernetes.io/config.mirror"
TAINT = {"key": "example.com/own", "effect": "NoSchedule"}


def as_node(request: ApiRequest, node: str = MINE) -> ApiRequest:
    """The same request, made by the kubelet of a node."""
    who = {"Impersonate-User": f"system:node:{node}", "Impersonate-Group": "system:nodes"}
    shown = ("kind", "code", "reason", "message", "details")
    return replace(request, headers={**request.headers, **who}, only=shown)


def quiet(request: ApiRequest) -> ApiRequest:
    return replace(request, show="status")


def node(name: str, **meta: Any) -> Body:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta}}


def tainted_node(name: str, **meta: Any) -> Body:
    """A node with a taint that no controller removes, unlike the not-ready taint."""
    return {**node(name, **meta), "spec": {"taints": [TAINT]}}


def secret(name: str) -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


def account(name: str) -> Body:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def claim(name: str) -> Body:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "volumeName": f"{name}-$u",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def volume(name: str) -> Body:
    reference = {"name": f"{name}-of-volume", "namespace": "$ns"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"name": name, "namespace": "$ns"},
        "csi": {
            "driver": "x.example",
            "volumeHandle": f"{name}-$u",
            "nodePublishSecretRef": reference,
            "controllerExpandSecretRef": {"name": f"{name}-of-controller", "namespace": "$ns"},
        },
    }
    meta = {"name": f"{name}-$u"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def bound(name: str, on: str) -> Body:
    """A pod on a node with a Secret, a ConfigMap, a claim and a service account of its name."""
    variable = {"name": "X", "valueFrom": {"secretKeyRef": {"name": f"{name}-env", "key": "k"}}}
    projected = {"sources": [{"serviceAccountToken": {"path": "t", "audience": "aud"}}]}
    container = {"name": "main", "image": "registry.example/x:1", "env": [variable]}
    return pod(
        name,
        nodeName=on,
        serviceAccountName=name,
        containers=[container],
        volumes=[
            {"name": "s", "secret": {"secretName": f"{name}-volume"}},
            {"name": "c", "configMap": {"name": name}},
            {"name": "p", "persistentVolumeClaim": {"claimName": name}},
            {"name": "t", "projected": projected},
        ],
    )


def _objects(name: str, on: str) -> tuple[Step, ...]:
    secrets = ("env", "volume", "of-volume", "of-controller", "other")
    return (
        quiet(post(NODES, node(on))),
        *(quiet(post(SECRETS, secret(f"{name}-{kind}"))) for kind in secrets),
        quiet(post(CM, cm(name))),
        quiet(post(ACCOUNTS, account(name))),
        quiet(post(CLAIMS, claim(name))),
        quiet(post(VOLUMES, volume(name))),
        quiet(post(PODS, bound(name, on), save={f"uid{name[0]}": "metadata.uid"})),
    )


def _related(resource: str, name: str, on: str, namespace: str = "$ns") -> Step:
    about = {"verb": "get", "resource": resource, "name": name, "namespace": namespace}
    body = review(
        "SubjectAccessReview",
        user=f"system:node:{on}",
        groups=["system:nodes"],
        resourceAttributes=about,
    )
    return settle(post(OTHERS, body), "status.allowed", True)


SCENE: tuple[Step, ...] = (
    *_objects("p", MINE),
    *_objects("q", THEIRS),
    _related("configmaps", "p", MINE),
    _related("configmaps", "q", THEIRS),
    _related("persistentvolumes", "p-$u", MINE, ""),
    _related("persistentvolumes", "q-$u", THEIRS, ""),
)


def token(**ref: str) -> Body:
    spec: Body = {"audiences": ["aud"]}
    if ref:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **ref}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def mirror(name: str, on: str, uid: str = "$node", **spec: Any) -> Body:
    made = pod(name, nodeName=on, **spec)
    owner = {"apiVersion": "v1", "kind": "Node", "name": on, "uid": uid, "controller": True}
    made["metadata"].update({"annotations": {MIRROR: "x"}, "ownerReferences": [owner]})
    return made


def lease(name: str) -> Body:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**head, "metadata": {"name": name}, "spec": {"holderIdentity": name}}


def csi_node(name: str) -> Body:
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return {**head, "metadata": {"name": name}, "spec": {"drivers": []}}


READS = (
    case(
        "secrets and config maps of own pods",
        *SCENE,
        *(
            as_node(get(f"{SECRETS}/{name}-{kind}"))
            for name in "pq"
            for kind in ("env", "volume", "of-volume", "of-controller", "other")
        ),
        *(as_node(get(f"{CM}/{name}")) for name in "pq"),
        as_node(get(SECRETS)),
        as_node(get("/api/v1/secrets")),
        as_node(get(f"{SECRETS}?fieldSelector=metadata.name%3Dp-env")),
        as_node(get(f"{SECRETS}?fieldSelector=metadata.name%3Dq-env")),
        as_node(delete(f"{SECRETS}/p-env")),
    ),
    case(
        "claims, volumes and accounts of own pods",
        *SCENE,
        *(as_node(get(f"{CLAIMS}/{name}")) for name in "pq"),
        *(as_node(get(f"{VOLUMES}/{name}-$u")) for name in "pq"),
        *(as_node(get(f"{ACCOUNTS}/{name}")) for name in "pq"),
        as_node(get(CLAIMS)),
        as_node(get(VOLUMES)),
        as_node(delete(f"{CLAIMS}/p")),
    ),
    case(
        "pods",
        *SCENE,
        *(as_node(get(f"{PODS}/{name}")) for name in "pq"),
        as_node(get(PODS)),
        as_node(get("/api/v1/pods?fieldSelector=spec.nodeName%3Dmine-$u")),
        as_node(get("/api/v1/pods?fieldSelector=spec.nodeName%3Dtheirs-$u")),
        as_node(get("/api/v1/pods?fieldSelector=spec.nodeName%21%3Dmine-$u")),
    ),
    case(
        "nodes",
        *SCENE,
        as_node(get(f"{NODES}/mine-$u")),
        as_node(get(f"{NODES}/theirs-$u")),
        as_node(get(NODES)),
        as_node(get(f"{NODES}?fieldSelector=metadata.name%3Dmine-$u")),
        as_node(get(f"{NODES}?fieldSelector=metadata.name%3Dtheirs-$u")),
    ),
    case(
        "a kubelet without a name",
        as_node(get(NODES), ""),
        as_node(post(NODES, node("x-$u")), ""),
    ),
)

WRITES = (
    case(
        "its own node",
        as_node(post(NODES, tainted_node(MINE, labels={"kubernetes.io/hostname": "a", "x": "y"}))),
        as_node(post(NODES, node(THEIRS))),
        as_node(patch(MERGE, f"{NODES}/mine-$u", {"metadata": {"labels": {"x": "z"}}})),
        as_node(
            patch(MERGE, f"{NODES}/mine-$u", {"metadata": {"labels": {"kubernetes.io/x": "z"}}})
        ),
        as_node(patch(MERGE, f"{NODES}/mine-$u", {"spec": {"taints": []}})),
        as_node(
            patch(
                MERGE,
                f"{NODES}/mine-$u",
                {"spec": {"taints": [TAINT, {"key": "example.com/more", "effect": "NoSchedule"}]}},
            )
        ),
        as_node(patch(MERGE, f"{NODES}/mine-$u", {"spec": {"unschedulable": True}})),
        as_node(patch(MERGE, f"{NODES}/mine-$u/status", {"status": {"capacity": {"cpu": "1"}}})),
        as_node(delete(f"{NODES}/mine-$u")),
    ),
    case(
        "labels that select workloads",
        *(
            as_node(post(NODES, node(MINE, labels={label: "x"})))
            for label in (
                "node-restriction.kubernetes.io/a",
                "x.node-restriction.kubernetes.io/a",
                "node-role.kubernetes.io/control-plane",
                "example.k8s.io/a",
            )
        ),
        as_node(
            post(
                NODES,
                node(
                    MINE,
                    labels={
                        "node.kubernetes.io/anything": "x",
                        "kubelet.kubernetes.io/b": "x",
                        "topology.kubernetes.io/zone": "x",
                        "example.com/c": "x",
                    },
                ),
            )
        ),
    ),
    case(
        "the node of another",
        *SCENE,
        as_node(patch(MERGE, f"{NODES}/theirs-$u", {"metadata": {"labels": {"x": "z"}}})),
        as_node(patch(MERGE, f"{NODES}/theirs-$u/status", {"status": {"capacity": {"cpu": "1"}}})),
        as_node(delete(f"{NODES}/theirs-$u")),
    ),
    case(
        "leases and CSI nodes",
        as_node(post(LEASES, lease(MINE))),
        as_node(post(LEASES, lease(THEIRS))),
        quiet(post(LEASES, lease(THEIRS))),
        as_node(get(f"{LEASES}/mine-$u")),
        as_node(get(f"{LEASES}/theirs-$u")),
        as_node(patch(MERGE, f"{LEASES}/theirs-$u", {"spec": {"holderIdentity": "x"}})),
        as_node(get("/apis/coordination.k8s.io/v1/namespaces/$ns/leases/mine-$u")),
        as_node(get(LEASES)),
        as_node(post(CSI_NODES, csi_node(MINE))),
        as_node(post(CSI_NODES, csi_node(THEIRS))),
        as_node(delete(f"{CSI_NODES}/theirs-$u")),
        as_node(delete(f"{CSI_NODES}/mine-$u")),
    ),
    case(
        "tokens of own pods",
        *SCENE,
        as_node(post(f"{ACCOUNTS}/p/token", token(name="p", uid="$uidp"))),
        as_node(post(f"{ACCOUNTS}/p/token", token())),
        as_node(post(f"{ACCOUNTS}/p/token", token(name="p"))),
        as_node(post(f"{ACCOUNTS}/p/token", token(name="q", uid="$uidq"))),
        as_node(post(f"{ACCOUNTS}/p/token", token(name="p", uid="x"))),
        as_node(post(f"{ACCOUNTS}/q/token", token(name="q", uid="$uidq"))),
        as_node(
            post(
                f"{ACCOUNTS}/p/token",
                {
                    **token(),
                    "spec": {
                        "audiences": ["else"],
                        "boundObjectRef": {
                            "apiVersion": "v1",
                            "kind": "Pod",
                            "name": "p",
                            "uid": "$uidp",
                        },
                    },
                },
            )
        ),
    ),
    case(
        "mirror pods",
        quiet(post(NODES, node(MINE), save={"node": "metadata.uid"})),
        quiet(post(NODES, node(THEIRS))),
        settle(as_node(get(f"{NODES}/mine-$u")), "status", 200),
        as_node(post(PODS, pod("plain", nodeName=MINE))),
        as_node(post(PODS, mirror("elsewhere", THEIRS))),
        as_node(post(PODS, mirror("wrong", MINE, "other"))),
        as_node(
            post(PODS, mirror("s", MINE, volumes=[{"name": "v", "secret": {"secretName": "x"}}]))
        ),
        as_node(
            post(
                PODS,
                mirror(
                    "c",
                    MINE,
                    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}],
                ),
            )
        ),
    ),
    case(
        "status and deletion of pods",
        *SCENE,
        as_node(patch(MERGE, f"{PODS}/p/status", {"status": {"phase": "Running"}})),
        as_node(patch(MERGE, f"{PODS}/q/status", {"status": {"phase": "Running"}})),
        as_node(patch(MERGE, f"{PODS}/p/status", {"metadata": {"labels": {"app": "y"}}})),
        as_node(patch(MERGE, f"{PODS}/p", {"metadata": {"labels": {"app": "y"}}})),
        as_node(delete(f"{PODS}/q")),
        as_node(
            post(
                f"{PODS}/q/eviction",
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}},
            )
        ),
        as_node(delete(f"{PODS}/p", {"gracePeriodSeconds": 0})),
        as_node(post(f"{PODS}/q/binding", {"target": {"name": MINE}})),
    ),
)

# Random requests

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
_TARGETS = (
    ("", "secrets", "", "p-env"),
    ("", "secrets", "", "q-env"),
    ("", "configmaps", "", "q"),
    ("", "persistentvolumeclaims", "status", "p"),
    ("", "persistentvolumeclaims", "", "q"),
    ("", "pods", "", "p"),
    ("", "pods", "status", "q"),
    ("", "pods", "eviction", "p"),
    ("", "pods", "binding", "p"),
    ("", "serviceaccounts", "token", "p"),
    ("", "serviceaccounts", "token", "q"),
    ("", "nodes", "", THEIRS),
    ("", "nodes", "status", MINE),
    ("", "nodes", "proxy", MINE),
    ("", "events", "", "x"),
    ("", "services", "", "x"),
    ("", "endpoints", "", "x"),
    ("apps", "deployments", "", "x"),
    ("coordination.k8s.io", "leases", "", MINE),
    ("storage.k8s.io", "csinodes", "", MINE),
    ("storage.k8s.io", "csidrivers", "", "x"),
    ("storage.k8s.io", "volumeattachments", "", "x"),
    ("node.k8s.io", "runtimeclasses", "", "x"),
    ("certificates.k8s.io", "certificatesigningrequests", "", "x"),
    ("certificates.k8s.io", "certificatesigningrequests", "approval", "x"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "x"),
)


def _question(dice: random.Random) -> ApiRequest:
    group, resource, subresource, name = dice.choice(_TARGETS)
    about = {
        "verb": dice.choice(_VERBS),
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": dice.choice((name, name, "")),
        "namespace": dice.choice(("$ns", "$ns", "kube-node-lease", "")),
    }
    body = review(
        "SubjectAccessReview",
        user=f"system:node:{dice.choice((MINE, THEIRS))}",
        groups=["system:nodes"],
        resourceAttributes=about,
    )
    return post(OTHERS, body, only=("spec.resourceAttributes", "status"))


def _random_case(seed: int) -> Case:
    dice = random.Random(seed)
    questions = (_question(dice) for _ in range(60))
    return case(f"random requests, seed {seed}", *SCENE, *questions)


CASES = (*READS, *WRITES, *(_random_case(seed) for seed in range(4)))
