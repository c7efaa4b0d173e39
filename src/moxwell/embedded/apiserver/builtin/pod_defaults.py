"""Defaults of Pods and Pod templates, as in kube-apiserver."""

import random
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
MIRROR = "kubernetes.io/config.mirror"  # the annotation of a kubelet's own pods
MODE = 0o644


def _put(obj: Object, **given: Any) -> None:
    for key, value in given.items():
        obj.setdefault(key, value)


def containers(spec: Object) -> Iterator[Object]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def pull_policy(image: str) -> str:
    """Return Always for an image with a mutable tag."""
    name = image.rsplit("/", 1)[-1]
    if "@" in name:
        return "IfNotPresent"
    _, _, tag = name.partition(":")
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def default_container(container: Object) -> None:
    _put(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    _put(container, imagePullPolicy=pull_policy(container.get("image", "")))
    for port in container.get("ports") or ():
        _put(port, protocol="TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http(handler)
    for env in container.get("env") or ():
        _field_ref(env.get("valueFrom") or {})


def _probe(probe: Object) -> None:
    _put(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    _http(probe)
    if "grpc" in probe:
        _put(probe["grpc"], service="")


def _http(handler: Object) -> None:
    if "httpGet" in handler:
        _put(handler["httpGet"], path="/", scheme="HTTP")


def _field_ref(source: Object) -> None:
    if "fieldRef" in source:
        _put(source["fieldRef"], apiVersion="v1")
    if "resourceFieldRef" in source:
        _put(source["resourceFieldRef"], divisor="0")


def default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            _put(volume[name], defaultMode=MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_ref(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            _put(source["serviceAccountToken"], expirationSeconds=3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_ref(item)
    if "hostPath" in volume:
        _put(volume["hostPath"], type="")
    if "ephemeral" in volume:
        claim = (volume["ephemeral"].get("volumeClaimTemplate") or {}).get("spec")
        if claim is not None:
            _put(claim, volumeMode="Filesystem")


def default_spec(spec: Object) -> None:
    """Set the defaults of a Pod's or template's spec."""
    for container in containers(spec):
        default_container(container)
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    _put(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    _put(spec, terminationGracePeriodSeconds=30, securityContext={})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if spec.get("hostNetwork"):
        for container in containers(spec):
            for port in container.get("ports") or ():
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort")


def default_template(template: Object) -> None:
    if "spec" in template:
        default_spec(template["spec"])


def default_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    default_spec(spec)
    _put(spec, enableServiceLinks=True)
    for container in containers(spec):
        resources = container.get("resources") or {}
        for name, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)


def admit_pod(pod: Object) -> None:
    """Add what the default admission plugins add to a new Pod; a mirror pod gets no account."""
    spec = pod["spec"]
    mirror = MIRROR in (pod["metadata"].get("annotations") or {})
    if not mirror:
        _put(spec, serviceAccountName="default", serviceAccount="default")
    _put(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            t.get("key", key) == key and t.get("effect", "NoExecute") == "NoExecute"
            for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    if not mirror and spec.get("automountServiceAccountToken") is not False:
        _mount_token(spec)


def _mount_token(spec: Object) -> None:
    volumes = spec.setdefault("volumes", [])
    if any(v.get("name", "").startswith("kube-api-access-") for v in volumes):
        return
    name = "kube-api-access-" + "".join(
        random.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5)
    )
    volumes.append({"name": name, "projected": {"sources": _token_sources(), "defaultMode": MODE}})
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    for container in containers(spec):
        mounts = container.setdefault("volumeMounts", [])
        if not any(m.get("mountPath") == where for m in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": where})


def _token_sources() -> list[Object]:
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    return [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
