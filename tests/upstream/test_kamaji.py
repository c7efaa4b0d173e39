"""
Genuine Kamaji, Cluster API and Helm with our provider and chart: a tenant is Ready, workers join.

Kamaji's pod is run as processes: genuine kube-apiserver, kube-controller-manager and kube-scheduler
with the flags and files that Kamaji wrote, beside a genuine etcd as its DataStore. Its Cluster API
provider cannot be built (the Go module registry does not serve the version of Kamaji that it
requires), so our KamajiControlPlane controller stands in for it. Machines are simulated guests. All
is in a network and mount namespace, where names of Services resolve by ``/etc/hosts``.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from envtest import control_plane, locate, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from envtest.process import free_port, wait_ready
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.kamaji import TenantControlPlane
from moxwell.embedded.clusterapi.controlplane.controller import KamajiControlPlaneController
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.controlplanes.binaries.etcd_client import EtcdClient
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.engine import Engine
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller
from moxwell.testing.two_regions_world import QUICK
from support.cluster_api_run import run_story
from support.pod_process import require_namespaces
from support.process_kubelet import ProcessKubelet
from support.real_nodes import ready as is_ready

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("kamaji")]
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "moxwell-cluster"
ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
HERE, VERSION = "198.51.100.1", "v1.30.2"  # the newest that Kamaji v1.0.0 knows
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PATIENCE_SECONDS = 300.0
VALUES: dict[str, Any] = {
    "cluster": {
        "controlPlane": {
            "version": VERSION,
            "replicas": 1,
            "dataStoreName": "default",
            "addons": {"konnectivity": None},
        },
        "zones": [
            {
                "zone": "a",
                "region": "north",
                "ipv4Config": {
                    "addresses": ["10.1.0.10-10.1.0.99"],
                    "prefix": 24,
                    "gateway": "10.1.0.1",
                },
            }
        ],
    },
    "nodePools": [
        {"name": "w", "templateId": 9000, "numCores": 2, "memoryMiB": 4096, "replicas": 2}
    ],
}


def test_a_tenant_of_genuine_kamaji_is_ready_and_its_workers_join(tmp_path: Path) -> None:
    require(*KUBERNETES, *CAPI, "kube-controller-manager", "kube-scheduler", "kamaji", "helm")
    require_namespaces()
    words = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:randomly", "-q", "-x"]
    done = subprocess.run(
        [*ALONE, *words, "--basetemp", str(tmp_path / "inner"), f"{__file__}::test_inside"],
        cwd=ROOT, env={**os.environ, "MOXWELL_KAMAJI": "inside"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert "1 passed" in done.stdout


class DataStore:
    """A genuine etcd with the users of Kamaji's tenants."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane, self.endpoint = plane, f"127.0.0.1:{free_port()}"
        now = datetime.now(UTC)
        self.ca = rsa_authority(now)
        self.root = certificates.issue(CertificateConfig(common_name="root"), self.ca, now)
        names = ("127.0.0.1", "localhost")
        server = certificates.issue(
            CertificateConfig(common_name="e", alt_names=names), self.ca, now
        )
        self._files = {
            "ca.crt": self.ca.certificate,
            "e.crt": server.certificate,
            "e.key": server.key,
        }

    def start(self) -> None:
        folder = self._plane.folder / "tenants"
        folder.mkdir()
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
        url, peer = f"https://{self.endpoint}", f"http://127.0.0.1:{free_port()}"
        process = self._plane.run(
            "tenants-etcd", locate.program("etcd"), "--name=t", f"--data-dir={folder / 'data'}",
            f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=t={peer}", "--client-cert-auth=true",
            f"--trusted-ca-file={folder / 'ca.crt'}", f"--cert-file={folder / 'e.crt'}",
            f"--key-file={folder / 'e.key'}", "--log-level=warn", "--unsafe-no-fsync=true",
        )  # fmt: skip
        wait_ready(process, lambda: asyncio.run(self._prepare()))

    def connect(self) -> EtcdClient:
        return EtcdClient(
            [self.endpoint],
            ca=self.ca.certificate,
            certificate=self.root.certificate,
            key=self.root.key,
        )

    async def _prepare(self) -> bool:
        try:
            async with self.connect() as etcd:
                await etcd.probe()
                await etcd.enable_auth()
        except MoxwellError:
            return False
        return True

    def manifest(self) -> str:
        def content(data: bytes) -> dict[str, str]:
            return {"content": base64.b64encode(data).decode()}

        def pair(found: KeyPair) -> dict[str, Any]:
            key = serialization.load_pem_private_key(found.key, None)
            text = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
            return {"certificate": content(found.certificate), "privateKey": content(text)}

        tls = {"certificateAuthority": pair(self.ca), "clientCertificate": pair(self.root)}
        spec = {"driver": "etcd", "endpoints": [self.endpoint], "tlsConfig": tls}
        head = {"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore"}
        return yaml.safe_dump({**head, "metadata": {"name": "default"}, "spec": spec})


def rsa_authority(now: datetime) -> KeyPair:
    """A CA with an RSA key in PKCS#1, which Kamaji needs."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.replace(year=now.year - 1))
        .not_valid_after(now.replace(year=now.year + 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    return KeyPair(made.public_bytes(pem), text)


@pytest.fixture
def network(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{HERE} c.default.svc c.default.svc.cluster.local\n")
    for words in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "address", "add", f"{HERE}/32", "dev", "lo"),
        ("mount", "--bind", str(hosts), "/etc/hosts"),
    ):
        subprocess.run(words, check=True)


@pytest.fixture
def plane(network: None, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path / "plane") as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=1h")
        made.start_scheduler()
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


def start_kamaji(plane: ControlPlane, store: DataStore) -> None:
    chart = locate.folder("kamaji") / "src" / "charts" / "kamaji"
    plane.namespace("kamaji-system")
    plane.kubectl("apply", "--server-side", "-f", str(chart / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    plane.kubectl("apply", "-f", "-", stdin=store.manifest())
    folder = plane.folder / "kamaji"
    certs = folder / "k8s-webhook-server" / "serving-certs"
    certs.mkdir(parents=True)
    serving = plane.authority.server("kamaji-webhook")
    (certs / "tls.crt").write_bytes(serving.cert.read_bytes())
    (certs / "tls.key").write_bytes(serving.key.read_bytes())
    (certs / "ca.crt").write_bytes(plane.authority.pem)
    health = free_port()
    process = plane.start_program(
        "kamaji", "manager", "--leader-elect=false", "--disable-telemetry", "--datastore=default",
        f"--tmp-directory={folder}", "--pod-namespace=kamaji-system",
        "--serviceaccount-name=kamaji",
        f"--webhook-ca-path={certs / 'ca.crt'}", "--migrate-image=none", "--kine-image=none",
        f"--metrics-bind-address=127.0.0.1:{free_port()}",
        f"--health-probe-bind-address=127.0.0.1:{health}", env={"TMPDIR": str(folder)},
    )  # fmt: skip
    wait_ready(process, lambda: managers.is_ready(health))
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(webhooks(plane, chart)))


def webhooks(plane: ControlPlane, chart: Path) -> list[dict[str, Any]]:
    """Kamaji's admission webhooks of its chart, by URL."""
    words = [str(locate.program("helm")), "template", "kamaji", str(chart), "-n", "kamaji-system"]
    env = {"HOME": str(plane.folder), "PATH": "/usr/bin:/bin"}
    text = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout
    bundle = base64.b64encode(plane.authority.pem).decode()
    found = [
        obj
        for obj in yaml.safe_load_all(text)
        if obj and obj["kind"].endswith("WebhookConfiguration")
    ]
    for obj in found:
        for hook in obj["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:9443{path}", "caBundle": bundle}
    assert found
    return found


def add_provider(runtime: Runtime) -> None:
    resolver = ReferenceResolver([ProxmoxCluster.resource])
    reconciler = KamajiControlPlaneController(runtime.kube, resolver)
    runtime.manager.add(Controller(name="embedded.kamajicontrolplane", reconciler=reconciler))


class Story:
    """kubectl of the management cluster and of the tenant, and Helm."""

    def __init__(self, plane: ControlPlane, kubelet: ProcessKubelet, folder: Path) -> None:
        self.plane, self._kubelet, self._folder = plane, kubelet, folder

    async def helm(self, *args: str) -> None:
        words = [str(locate.program("helm")), "--kubeconfig", str(self.plane.kubeconfig), *args]
        env = {"HOME": str(self._folder), "PATH": "/usr/bin:/bin"}
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, check=False, env=env
        )
        assert done.returncode == 0, done.stderr

    async def get(self, *args: str, config: Path | None = None) -> Any:
        target = ("--kubeconfig", str(config)) if config else ()
        done = await asyncio.to_thread(
            self.plane.kubectl, "get", *args, "-o", "json", *target, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

    async def until(self, what: str, test: Any) -> Any:
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (found := await test()):
            if asyncio.get_running_loop().time() > end:
                output = await self.get(
                    "tenantcontrolplanes,kamajicontrolplanes,machines,pods", "-A"
                )
                log = (self.plane.folder / "kamaji.log").read_text()[-3000:]
                raise AssertionError(
                    f"{what} did not come: {self._kubelet.problems[-3:]} {log} "
                    f"{json.dumps(output)[-4000:]}"
                )
            await asyncio.sleep(0.5)
        return found


@pytest.mark.skipif(os.environ.get("MOXWELL_KAMAJI") != "inside", reason="run in a namespace")
def test_inside(plane: ControlPlane, tmp_path: Path) -> None:
    store = DataStore(plane)
    store.start()
    start_kamaji(plane, store)
    programs = {name: locate.program(name) for name in COMPONENTS}
    with ProcessKubelet(plane, HERE, programs) as kubelet:
        story = Story(plane, kubelet, tmp_path)

        async def tell(kube: Kube, engine: Engine) -> None:
            await _tell(story, kube, store, tmp_path)

        run_story(plane, tell, world=QUICK.replace("v1.34.1", VERSION), extend=add_provider)


async def _tell(story: Story, kube: Kube, store: DataStore, folder: Path) -> None:
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    await story.helm("install", "c", str(CHART), "-f", str(values), "-n", "default")

    async def ready() -> Any:
        found = await kube.find(TenantControlPlane, "c", "default")
        return (
            found if found and found.status.kubernetes_resources.version.status == "Ready" else None
        )

    tenant = await story.until("a TenantControlPlane that is Ready", ready)
    assert tenant.status.control_plane_endpoint == f"{HERE}:6443"

    async def config() -> Path | None:
        secret = await story.get("secret", "c-kubeconfig", "-n", "default")
        if secret is None:
            return None
        file = folder / "tenant.kubeconfig"
        file.write_bytes(base64.b64decode(secret["data"]["value"]))
        return file

    admin = await story.until("the kubeconfig of Cluster API's contract", config)

    async def joined() -> list[str]:
        found = await story.get("nodes", config=admin)
        rows = found["items"] if found else []
        good = [n["metadata"]["name"] for n in rows if is_ready(n)]
        return good if len(good) == 2 else []

    nodes = await story.until("two workers", joined)

    async def referenced() -> bool:
        found = await story.get("machines.cluster.x-k8s.io", "-n", "default")
        refs = {(m["status"].get("nodeRef") or {}).get("name") for m in found["items"]}
        return refs == set(nodes)

    await story.until("Machines that name their Nodes", referenced)
    for name in ("kubeadm-config", "coredns", "kube-proxy"):  # Kamaji's own work in the tenant
        assert await story.get("configmap", name, "-n", "kube-system", config=admin), name
    async with store.connect() as etcd:
        assert any("default" in user for user in await etcd.users())
    await story.helm("uninstall", "c", "-n", "default")

    async def is_gone() -> bool:
        kinds = ("clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "proxmoxmachines")
        found = await story.get(",".join((*kinds, "tenantcontrolplanes")), "-n", "default")
        return found is not None and not found["items"]

    await story.until("nothing is left", is_gone)
