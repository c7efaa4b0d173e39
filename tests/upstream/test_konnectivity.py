"""
Genuine kube-apiserver reads the log of a pod through genuine konnectivity, without a route to it.

It also has the add-ons: genuine kube-controller-manager makes the pod of kube-proxy for the node.

The kubelet is a stand-in: an HTTPS server with kubelet's path for logs, in a network namespace that
the namespace of the control plane has no route to.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from envtest.locate import cache
from envtest.plugin import KUBERNETES, require

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("control plane binaries"),
]
HERE, GUEST, KUBELET = "198.51.100.1", "198.51.100.2", "10.99.0.5"

HOST_SIDE = f"""
import asyncio, os, socket, subprocess, sys
from pathlib import Path
from moxwell.api.kinds import Resource
from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.addons.built_in import AddonSettings
from moxwell.embedded.controlplanes.binaries.control_planes import BinaryControlPlanes
from moxwell.embedded.controlplanes.binaries.installed import InstalledReleases
from moxwell.embedded.controlplanes.binaries.konnectivity import KonnectivitySettings
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.ports import free_port
from moxwell.errors import MoxwellError
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig
from moxwell.runtime.binaries import Programs
from moxwell.runtime.key import Key
from moxwell.testing.control_planes_contract import Stage, client

NODES = Resource("", "v1", "nodes", "Node", False)
PODS = Resource("", "v1", "pods", "Pod")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")

def ip(*words):
    subprocess.run(["ip", *words], check=True)

async def objects(kube):
    status = {{"addresses": [{{"type": "InternalIP", "address": "{KUBELET}"}}],
              "daemonEndpoints": {{"kubeletEndpoint": {{"Port": 10250}}}}}}
    node = {{"apiVersion": "v1", "kind": "Node", "status": status,
            "metadata": {{"name": "n1", "labels": {{"kubernetes.io/os": "linux"}}}}}}
    await kube.create(node, NODES)
    spec = {{"nodeName": "n1", "automountServiceAccountToken": False,
            "containers": [{{"name": "c", "image": "i"}}]}}
    meta = {{"name": "p", "namespace": "default"}}
    await kube.create({{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}}, PODS)

async def read_log(kube):
    path = "/api/v1/namespaces/default/pods/p/log"
    answer = await kube._caller.call("GET", path, accept="*/*")
    return answer.body.decode()

async def until(work, what):
    problem = "it stays so"
    for _ in range(120):
        try:
            if found := await work():
                return found
        except MoxwellError as error:
            problem = error
        await asyncio.sleep(0.5)
    raise AssertionError(f"{{what}}: {{problem}}")

async def main(root, cache):
    ip("link", "set", "lo", "up")
    guest = await asyncio.create_subprocess_exec(
        "unshare", "--net", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    guest.stdin.write(b"ready\\n")
    await guest.stdout.readline()
    ip("link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(guest.pid))
    ip("address", "add", "{HERE}/24", "dev", "veth0")
    ip("link", "set", "veth0", "up")
    inside = ["nsenter", "--net", "--target", str(guest.pid)]
    for words in (("address", "add", "{GUEST}/24", "dev", "veth1"), ("link", "set", "veth1", "up"),
                  ("link", "set", "lo", "up"), ("address", "add", "{KUBELET}/32", "dev", "lo")):
        subprocess.run([*inside, "ip", *words], check=True)
    clock = SystemClock()
    ca = certificates.create_ca("kubelet", clock.now())
    pair = certificates.issue(
        CertificateConfig(common_name="n1", alt_names=("{KUBELET}",)), ca, clock.now())
    (root / "kubelet.pem").write_bytes(pair.certificate + pair.key)
    kubelet = await asyncio.create_subprocess_exec(
        *inside, sys.executable, "-c", KUBELET_SIDE, str(root / "kubelet.pem"))
    installed = InstalledReleases([cache])
    version = await installed.newest()
    stage = Stage(lambda: BinaryControlPlanes(
        root / "planes", clock, installed=installed, new_port=free_port,
        processes=Processes(clock, {{"PATH": os.environ["PATH"], "HOME": str(root)}}),
        address=lambda folder: "{HERE}", konnectivity=KonnectivitySettings(image="local/agent"),
        addons=AddonSettings(kube_proxy=True, coredns=True, manifests=(
            {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "mine"}}}},))),
        clock, version, "")
    await stage.begin()
    agent = None
    try:
        plane = await stage.up(stage.spec("a"))
        async with client(plane, clock) as kube:
            agents = await kube.get(SETS, "konnectivity-agent", "kube-system")
            (pod,) = agents["spec"]["template"]["spec"]["containers"]
            print("image", pod["image"])
            await until(lambda: kube.find(ACCOUNTS, "default", "default"), "no account")
            await objects(kube)
            async def proxies():
                pods = (await kube.list(PODS, "kube-system")).items
                return [p for p in pods if p["metadata"]["name"].startswith("kube-proxy-")]
            (proxy,) = await until(proxies, "no kube-proxy")
            affinity = proxy["spec"]["affinity"]["nodeAffinity"]
            print("kube-proxy for n1", "n1" in str(affinity))
            mine = await kube.get(CONFIG_MAPS, "mine", "default")
            service = await kube.get(SERVICES, "kube-dns", "kube-system")
            print("addons", mine["metadata"]["name"], service["spec"]["clusterIP"])
            try:
                socket.create_connection(("{KUBELET}", 10250), timeout=2)
            except OSError as error:
                print("route", error.strerror)
            try:
                await read_log(kube)
            except MoxwellError as error:
                print("without agent", type(error).__name__)
            token = await kube.request_token(
                "konnectivity-agent", "kube-system", audience="system:konnectivity-server")
            secrets = root / "secrets"
            secrets.mkdir()
            (secrets / "token").write_text(token)
            (secrets / "ca.crt").write_text(plane.ca)
            flags = [arg.replace("/var/run/secrets/tokens", str(secrets)) for arg in pod["args"]]
            program = Programs([cache]).find("konnectivity-agent")
            agent = await asyncio.create_subprocess_exec(
                *inside, str(program), *flags, stderr=(root / "agent.log").open("wb"))
            print("log", await until(lambda: read_log(kube), "no log"))
    finally:
        for each in (agent, kubelet, guest):
            if each is not None and each.returncode is None:
                each.kill()
                await each.wait()
        await stage.runner.destroy(Key("team", "a"))
        await stage.end()
        print("left", await process.terminate_all(root / "planes", clock), flush=True)

KUBELET_SIDE = '''
import http.server, ssl, sys
class Kubelet(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.path.startswith("/containerLogs/default/p/c")
        body = b"seen through konnectivity" if asked else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("{KUBELET}", 10250), Kubelet)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
'''
asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_logs_of_a_pod_without_a_route_to_its_node(tmp_path: Path) -> None:
    require(*KUBERNETES, "kube-controller-manager", "kube-scheduler")
    require("konnectivity-server", "konnectivity-agent")
    probe = ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "v1"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces with veth pairs")
    script = textwrap.dedent(HOST_SIDE)
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", script, str(tmp_path), str(cache())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert "image local/agent" in ran.stdout
    assert "route Network is unreachable" in ran.stdout
    assert "without agent" in ran.stdout
    assert "log seen through konnectivity" in ran.stdout
    assert "kube-proxy for n1 True" in ran.stdout
    assert "addons mine 10.96.0.10" in ran.stdout
    assert "left 0" in ran.stdout
