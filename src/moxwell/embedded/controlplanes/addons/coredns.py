"""CoreDNS, with the objects of kubeadm's add-on phase. Pure."""

from ipaddress import ip_network

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.objects import (
    Json,
    account,
    binding,
    make_object,
    role,
    workload,
)

VERSION, NAME, ROLE = "v1.12.1", "coredns", "system:coredns"
COREFILE = """\
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes %s in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
"""


def coredns(repository: str, spec: HostedControlPlaneSpec) -> tuple[Json, ...]:
    """All objects; the Service has the tenth address, which kubelets give to pods."""
    verbs = ["list", "watch"]
    return (
        account(NAME),
        role(
            ROLE,
            ("", ["endpoints", "services", "pods", "namespaces"], verbs),
            ("discovery.k8s.io", ["endpointslices"], verbs),
        ),
        binding(ROLE, ROLE, NAME),
        make_object("v1", "ConfigMap", NAME, data={"Corefile": COREFILE % spec.cluster_domain}),
        workload("Deployment", NAME, "kube-dns", _pod(repository), replicas=2),
        _service(str(ip_network(spec.service_cidr.split(",")[0])[10])),
    )


def _service(address: str) -> Json:
    """``kubectl cluster-info`` finds it by its labels."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]
    spec = {"clusterIP": address, "selector": {"k8s-app": "kube-dns"}, "ports": ports}
    made = make_object("v1", "Service", "kube-dns", spec=spec)
    made["metadata"]["labels"] = {
        "k8s-app": "kube-dns",
        "kubernetes.io/cluster-service": "true",
        "kubernetes.io/name": "CoreDNS",
    }
    return made


def _pod(repository: str) -> Json:
    file = {"name": NAME, "items": [{"key": "Corefile", "path": "Corefile"}]}
    allowed = {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    container = {
        "name": NAME,
        "image": f"{repository}/coredns/coredns:{VERSION}",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53},
        ],
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": allowed},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": file}],
    }
