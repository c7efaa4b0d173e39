"""Manifests of genuine Cluster API for a cluster whose nodes run it as pods."""

import base64
from datetime import UTC, datetime
from typing import Any

import yaml

from envtest import managers
from envtest.managers import Manager
from moxwell.pki.certificates import CertificateConfig, KeyPair, create_ca, issue
from realnode import control_plane_images

Json = dict[str, Any]
SPACE, CERTIFICATES = "capi-system", "/certificates"
WEBHOOKS, HEALTH = 9443, 9440
MANAGERS = (*managers.ALL, managers.CONTROL_PLANE)


def cluster_api_manifests() -> str:
    """Core, the kubeadm providers and IPAM; webhooks are called by the addresses of Services."""
    now = datetime.now(UTC)
    ca = create_ca("webhooks", now)
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    found = [space, _rights()]
    for number, manager in enumerate(MANAGERS):
        found += _manager(manager, f"10.96.7.{number + 1}", ca, now)
    return yaml.dump_all(found, Dumper=managers.DUMPER)


def _manager(manager: Manager, address: str, ca: KeyPair, now: datetime) -> list[Json]:
    config = CertificateConfig(common_name=manager.name, alt_names=(address,), client_auth=False)
    pair = issue(config, ca, now)
    files = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
    ports = [{"port": 443, "targetPort": WEBHOOKS}]
    service = {"clusterIP": address, "selector": {"app": manager.name}, "ports": ports}
    bundle = base64.b64encode(ca.certificate).decode()
    return [
        *managers.objects(manager, f"https://{address}", bundle),
        _object("v1", "Secret", manager, stringData=files),
        _object("v1", "Service", manager, spec=service),
        _object("apps/v1", "Deployment", manager, spec=_deployment(manager)),
    ]


def _object(api: str, kind: str, manager: Manager, **rest: Any) -> Json:
    meta = {"name": manager.name, "namespace": SPACE}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def _rights() -> Json:
    api = "rbac.authorization.k8s.io"
    ref = {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": SPACE}
    head = {"apiVersion": f"{api}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": SPACE}}
    return head | {"roleRef": ref, "subjects": [subject]}


def _deployment(manager: Manager) -> Json:
    labels = {"app": manager.name}
    container = {
        "name": "manager",
        "image": control_plane_images.image_of(manager.name),
        "imagePullPolicy": "Never",
        "args": [
            f"--webhook-port={WEBHOOKS}",
            f"--webhook-cert-dir={CERTIFICATES}",
            "--webhook-cert-name=tls.crt",
            "--webhook-key-name=tls.key",
            f"{manager.health}=:{HEALTH}",
            *manager.flags,
        ],
        "env": [
            {"name": "POD_NAMESPACE", "value": SPACE},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": HEALTH}},
        "volumeMounts": [{"name": "certificates", "mountPath": CERTIFICATES}],
    }
    volume = {"name": "certificates", "secret": {"secretName": manager.name}}
    pod = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 5}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {"selector": {"matchLabels": labels}, "template": template}
