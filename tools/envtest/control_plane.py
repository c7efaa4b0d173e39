"""
Run an upstream control plane on free loopback ports.

Starts etcd and kube-apiserver in a folder and writes an admin kubeconfig; kube-controller-manager
and kube-scheduler are started on request. etcd does not fsync by default, so that a start takes
seconds.
"""

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from envtest import certs, kubeconfig, locate
from envtest.process import Failed, Process, free_port, wait_for, wait_ready

PROGRAMS = ("etcd", "kube-apiserver", "kubectl")


class ControlPlane:
    """A control plane in a folder; a context manager that stops its processes by id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = certs.Authority(folder / "pki")
        self.tokens = certs.token_keys(folder / "pki")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.admin = self.authority.client("admin", "system:masters")
        self.kubeconfig = self.kubeconfig_for("admin", "system:masters")
        self.processes: dict[str, Process] = {}
        self._ssl = ssl.create_default_context(cafile=str(self.authority.pair.cert))
        self._ssl.load_cert_chain(self.admin.cert, self.admin.key)

    # -- starting and stopping ---------------------------------------------------------------
    def start(self, *extra: str, durable: bool = False) -> "ControlPlane":
        """Start etcd (with fsync only if ``durable``) and kube-apiserver with ``extra`` flags."""
        etcd = self._start_etcd(durable)
        self._start_apiserver(etcd, extra)
        return self

    def start_controller_manager(self, *extra: str) -> Process:
        """Start garbage collection, namespaces, service accounts, attach/detach, node lifecycle."""
        ca = self.authority.pair
        return self._component(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.tokens.key}",
            f"--root-ca-file={ca.cert}",
            f"--cluster-signing-cert-file={ca.cert}",
            f"--cluster-signing-key-file={ca.key}",
            "--leader-elect=false",
            "--profiling=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *extra,
        )

    def start_scheduler(self, *extra: str) -> Process:
        return self._component(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--profiling=false",
            *extra,
        )

    def start_program(
        self, name: str, *args: str | Path, env: dict[str, str] | None = None
    ) -> Process:
        """Start an installed program of the table, with ``KUBECONFIG`` set to the admin's."""
        return self.run(name, locate.program(name), *args, env=env)

    def run(
        self, name: str, program: Path, *args: str | Path, env: dict[str, str] | None = None
    ) -> Process:
        """Start any program; it is stopped with this control plane."""
        full = {**os.environ, "KUBECONFIG": str(self.kubeconfig), **(env or {})}
        process = Process(name, [program, *args], folder=self.folder, env=full)
        self.processes[name] = process
        return process

    def stop(self) -> None:
        """Stop all processes, the last started first."""
        for process in reversed(list(self.processes.values())):
            process.stop()
        self.processes.clear()

    def __enter__(self) -> "ControlPlane":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    # -- requests ------------------------------------------------------------------------------
    def kubeconfig_for(self, user: str, *groups: str) -> Path:
        """Write a kubeconfig with a new client certificate."""
        pair = self.authority.client(user, *groups)
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        who = kubeconfig.user(pair)
        return kubeconfig.write(path, server=self.url, ca=self.authority.pair.cert, who=who)

    def kubectl(
        self, *args: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the admin."""
        command = [str(locate.program("kubectl")), "--kubeconfig", str(self.kubeconfig), *args]
        env = {**os.environ, "HOME": str(self.folder), "KUBECTL_KUBERC": "false"}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=check, env=env
        )

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """
        Send one JSON request as the admin; returns status and decoded body (text if not JSON).
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        ask = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(ask, context=self._ssl, timeout=60) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def namespace(self, name: str) -> str:
        """Create a namespace for one test module on a shared control plane; returns its name."""
        meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        status, body = self.request("POST", "/api/v1/namespaces", meta)
        if status not in (201, 409):
            raise Failed(f"namespace {name}: {body}")
        return name

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz")[0] == 200
        except (OSError, HTTPException):  # also if it is too slow to answer
            return False

    # -- the parts -----------------------------------------------------------------------------
    def _start_etcd(self, durable: bool) -> str:
        client, peer = free_port(), free_port()
        url = f"http://127.0.0.1:{client}"
        self.start_program(
            "etcd",
            "--name=envtest",
            f"--data-dir={self.folder / 'etcd'}",
            f"--unsafe-no-fsync={'false' if durable else 'true'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=envtest=http://127.0.0.1:{peer}",
            "--log-level=warn",
        )
        return url

    def _start_apiserver(self, etcd: str, extra: tuple[str, ...]) -> None:
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
        serving = self.authority.server("kube-apiserver", *names)
        process = self.start_program(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--tls-cert-file={serving.cert}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.pair.cert}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.tokens.cert}",
            f"--service-account-signing-key-file={self.tokens.key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            *extra,
        )
        wait_ready(process, self.is_ready)

    def _component(self, name: str, *args: str) -> Process:
        port = free_port()
        process = self.start_program(
            name,
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder}",
            *args,
        )
        wait_ready(process, lambda: answers(port))
        return process


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def answers(port: int) -> bool:
    """Whether a component reports healthy; its certificate is not verified."""
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    try:
        url = f"https://127.0.0.1:{port}/healthz"
        with urllib.request.urlopen(url, context=loose, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def wait_default_account(plane: ControlPlane, namespace: str = "default") -> None:
    """Wait for the default service account, without which Pods are rejected."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for(lambda: True if plane.request("GET", path)[0] == 200 else None, path)
