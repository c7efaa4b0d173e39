"""
The table of pinned programs: what is built, from which Go module, at which version.

Some modules cannot be built from their module path alone, because their ``go.mod`` replaces other
modules by folders that a module archive does not contain; ``siblings`` gives the published version
for such a folder (``*`` is every folder of the archive). ``pins`` replaces a version that the
registry does not serve by another patch version.
"""

from dataclasses import dataclass

KUBERNETES = "v1.36.3"
OLDEST_KUBECTL = "v1.29.15"  # the oldest version that the embedded API server supports
CLUSTER_API = "v1.13.6"
TALOS = "v1.11.5"
SNAPSHOTTER = "v8.3.0"
KONNECTIVITY = "v0.34.0"
ETCD = "v3.6.10"
KUBE_VIP = "v0.9.1"


@dataclass(frozen=True, slots=True)
class Tool:
    """One program: its module, and the parts of the source that are installed with it."""

    name: str
    module: str
    version: str
    package: str = ""
    stamps: tuple[str, ...] = ()
    siblings: tuple[tuple[str, str], ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    own: str = ""  # a folder beside this file with ``main.go``, which uses the module
    keep: tuple[str, ...] = ()
    keep_from: tuple[tuple[str, str, str], ...] = ()

    @property
    def target(self) -> str:
        """The Go package with ``main``."""
        if self.own:
            return "."
        return f"{self.module}/{self.package}" if self.package else self.module

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"


def _kubernetes_stamps(version: str) -> tuple[str, ...]:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"{p}.{k}={v}" for p in packages for k, v in facts.items())


def _kubernetes(name: str, version: str = KUBERNETES, *, known_as: str = "") -> Tool:
    return Tool(
        known_as or name,
        "k8s.io/kubernetes",
        version,
        f"cmd/{name}",
        stamps=_kubernetes_stamps(version),
        siblings=(("*", version.replace("v1.", "v0.", 1)),),
    )


def _cluster_api_stamps(version: str) -> tuple[str, ...]:
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"sigs.k8s.io/cluster-api/version.{k}={v}" for k, v in facts.items())


def _snapshotter(name: str) -> Tool:
    client = "github.com/kubernetes-csi/external-snapshotter/client/v8"
    return Tool(
        name,
        "github.com/kubernetes-csi/external-snapshotter/v8",
        SNAPSHOTTER,
        f"cmd/{name}",
        siblings=((client, "v8.2.0"),),
        keep_from=((client, "v8.2.0", "config/crd"),),
    )


def _konnectivity(name: str) -> Tool:
    module = "sigs.k8s.io/apiserver-network-proxy"
    client = f"{module}/konnectivity-client"
    return Tool(
        f"konnectivity-{name}",
        module,
        KONNECTIVITY,
        f"cmd/{name}",
        siblings=((client, KONNECTIVITY),),
    )


TOOLS: tuple[Tool, ...] = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", ETCD),
    Tool("etcdutl", "go.etcd.io/etcd/etcdutl/v3", ETCD),
    _kubernetes("kube-apiserver"),
    _kubernetes("kubectl"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _konnectivity("server"),
    _konnectivity("agent"),
    _kubernetes("kubectl", OLDEST_KUBECTL, known_as="kubectl-oldest"),
    Tool(
        "helm",
        "helm.sh/helm/v4",
        "v4.3.1",
        "cmd/helm",
        stamps=("helm.sh/helm/v4/internal/version.version=v4.3.1",),
    ),
    Tool(
        "cluster-api",
        "sigs.k8s.io/cluster-api",
        CLUSTER_API,
        keep=("config/crd/bases", "config/webhook"),
    ),
    Tool(
        "kubeadm-bootstrap",
        "sigs.k8s.io/cluster-api",
        CLUSTER_API,
        "bootstrap/kubeadm",
        keep=("bootstrap/kubeadm/config/crd/bases", "bootstrap/kubeadm/config/webhook"),
    ),
    Tool(
        "kubeadm-control-plane",
        "sigs.k8s.io/cluster-api",
        CLUSTER_API,
        "controlplane/kubeadm",
        keep=("controlplane/kubeadm/config/crd/bases", "controlplane/kubeadm/config/webhook"),
    ),
    Tool(
        "clusterctl",
        "sigs.k8s.io/cluster-api",
        CLUSTER_API,
        "cmd/clusterctl",
        stamps=_cluster_api_stamps(CLUSTER_API),
        keep=("cmd/clusterctl/config/manifest",),
    ),
    Tool(
        "in-cluster-ipam",
        "sigs.k8s.io/cluster-api-ipam-provider-in-cluster",
        "v1.1.0",
        keep=("config/crd/bases", "config/webhook"),
    ),
    Tool(
        "kamaji",
        "github.com/clastix/kamaji",
        "v1.0.0",
        keep=("charts/kamaji",),
    ),
    Tool("csi-sanity", "github.com/kubernetes-csi/csi-test/v5", "v5.6.0", "cmd/csi-sanity"),
    Tool(
        "csi-provisioner",
        "github.com/kubernetes-csi/external-provisioner/v5",
        "v5.1.0",
        "cmd/csi-provisioner",
    ),
    Tool(
        "csi-resizer",
        "github.com/kubernetes-csi/external-resizer",
        "v1.14.0",
        "cmd/csi-resizer",
    ),
    Tool("talos-config-check", "github.com/siderolabs/talos/pkg/machinery", TALOS, own="talos"),
    _snapshotter("csi-snapshotter"),
    _snapshotter("snapshot-controller"),
)
# The programs of a real node and of its add-ons: only `make real` builds all of them.
NODE_TOOLS: tuple[Tool, ...] = (
    _kubernetes("kubelet"),
    _kubernetes("kubeadm"),
    _kubernetes("kube-proxy"),
    Tool("metrics-server", "sigs.k8s.io/metrics-server", "v0.7.2", "cmd/metrics-server"),
    Tool("coredns", "github.com/coredns/coredns", "v1.12.1"),
    # the newest version that the registry serves and whose checksum is known
    Tool("kube-vip", "github.com/kube-vip/kube-vip", KUBE_VIP),
)
# Programs with the same purpose as Moxwell: only `make peers` builds them.
PEERS: tuple[Tool, ...] = (
    Tool(
        "capmox",
        "github.com/ionos-cloud/cluster-api-provider-proxmox",
        "v0.9.0",
        "cmd",
        pins=(("sigs.k8s.io/cluster-api", "v1.12.10"),),
        keep=("config/crd/bases", "config/webhook"),
    ),
    Tool(
        "proxmox-csi-controller",
        "github.com/sergelogvinov/proxmox-csi-plugin",
        "v0.18.1",
        "cmd/controller",
    ),
    Tool(
        "proxmox-ccm",
        "github.com/sergelogvinov/proxmox-cloud-controller-manager",
        "v0.7.0",
        "cmd/proxmox-cloud-controller-manager",
    ),
    Tool(
        "karpenter-proxmox",
        "github.com/sergelogvinov/karpenter-provider-proxmox",
        "v0.12.0",
        "cmd/controller",
        keep=("pkg/apis/crds",),
    ),
)
BY_NAME = {tool.name: tool for tool in (*TOOLS, *NODE_TOOLS, *PEERS)}
