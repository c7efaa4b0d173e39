"""
Containers of a pod as processes, as a kubelet would start them: command, user, files and account.

Each container gets a root file system of its own in a mount namespace: the system and this checkout
read-only, the volumes of the pod at their mount paths, and the token of the pod's ServiceAccount.
The network is the machine's, so ports must be free.
"""

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envtest import locate
from envtest.control_plane import ControlPlane
from envtest.plugin import skip_here
from envtest.process import Process, wait_for, wait_ready

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
SYSTEM = ("bin", "lib", "lib64", "sbin", "usr")
MACHINE = ("/dev", "/sys")  # host paths that are empty here: no program may touch the machine's
DEVICES = "null zero random urandom"
SECONDS = 600.0
ENTER = f"""
set -e
root=$1 writable=$2; shift 2
mount --bind "$root" "$root"
while [ "$1" != volumes ]; do mount --bind -o ro "$1" "$root$2"; shift 2; done; shift
while [ "$1" != programs ]; do mount --bind "$1" "$root$2"; shift 2; done; shift
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind -o ro "$1" "$root$2"; shift 2; done; shift
mount -t proc proc "$root/proc"
mkdir -p "$root/dev"
mount -t tmpfs tmpfs "$root/dev"
for name in {DEVICES}; do touch "$root/dev/$name"; mount --bind /dev/$name "$root/dev/$name"; done
[ "$writable" = yes ] || mount -o remount,bind,ro "$root"
exec "$@"
"""


def require_namespaces() -> None:
    """Skip where this user may not make mount namespaces."""
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        skip_here("no unshare and setpriv: containers cannot be started")
    probe = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    if os.geteuid() != 0 or probe.returncode:
        skip_here("mount namespaces are not permitted: containers cannot be started")


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A pod of a Deployment or DaemonSet that exists in the API."""

    plane: ControlPlane
    workload: Json
    node: str = ""

    @property
    def name(self) -> str:
        return str(self.workload["metadata"]["name"])

    @property
    def folder(self) -> Path:
        return self.plane.folder / "pods" / self.name

    @property
    def spec(self) -> Json:
        found: Json = self.workload["spec"]["template"]["spec"]
        return found

    def start(self, container: str, program: Path | None = None) -> Process:
        """Start a container and wait until its readiness probe succeeds."""
        spec = next(c for c in self.spec["containers"] if c["name"] == container)
        command = [str(program or Path(sys.executable).parent / "moxwell"), *spec["args"]]
        process = self.plane.run(
            f"{self.name}.{container}",
            Path(shutil.which("unshare") or "unshare"),
            *self._enter(spec),
            *command,
            env=self._environment(spec),
        )
        if probe := spec.get("readinessProbe") or spec.get("livenessProbe"):
            url = self._url(spec, probe["httpGet"])
            wait_ready(process, lambda: answers(url), seconds=SECONDS)
        return process

    def _enter(self, spec: Json) -> list[str]:
        root = self.folder / f"root-{spec['name']}"
        for name in ("proc", "etc", "var", "run"):
            (root / name).mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        mounts: list[str] = []
        for group, end in ((self._system(root), "volumes"), (self._volumes(spec), "programs")):
            for source, target in group:
                (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
                mounts += [str(source), target]
            mounts.append(end)
        mounts += [part for path in _programs() for part in (str(path), str(path))]
        mounts.append("--")
        security = {**self.spec.get("securityContext", {}), **spec.get("securityContext", {})}
        writable = "no" if security.get("readOnlyRootFilesystem") else "yes"
        enter = ["-m", "sh", "-c", ENTER, "sh", str(root), writable, *mounts]
        return [*enter, "chroot", str(root), *_privileges(security)]

    @staticmethod
    def _system(root: Path) -> list[tuple[Path, str]]:
        found: list[tuple[Path, str]] = []
        for path in (Path("/") / name for name in SYSTEM):
            if path.is_symlink():
                link = root / path.name
                if not link.is_symlink():
                    link.symlink_to(path.readlink())
            elif path.exists():
                found.append((path, str(path)))
        return found

    def _volumes(self, spec: Json) -> list[tuple[Path, str]]:
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        found = [(self._token(), TOKENS)]
        for mount in spec.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if volume.get("hostPath", {}).get("path") not in MACHINE:
                found.append((self._volume(volume), mount["mountPath"]))
        return found

    def _volume(self, volume: Json) -> Path:
        folder = self.folder / f"volume-{volume['name']}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        if "secret" in volume:
            for name, text in self._secret(volume["secret"]["secretName"]).items():
                _write(folder / name, base64.b64decode(text), volume["secret"]["defaultMode"])
        return folder

    def _secret(self, name: str) -> dict[str, str]:
        space = self.workload["metadata"]["namespace"]
        done = self.plane.kubectl("get", "secret", name, "-n", space, "-o", "json")
        data: dict[str, str] = json.loads(done.stdout)["data"]
        return data

    def _token(self) -> Path:
        """Token, CA and namespace as every pod has them."""
        folder, space = self.folder / "token", self.workload["metadata"]["namespace"]
        folder.mkdir(parents=True, exist_ok=True)
        account = self.spec["serviceAccountName"]
        words = ("create", "token", account, "-n", space, "--duration=2h")
        token = self.plane.kubectl(*words).stdout.strip().encode()
        files = {"token": token, "namespace": space.encode()}
        files["ca.crt"] = self.plane.authority.pair.cert.read_bytes()
        for name, content in files.items():
            _write(folder / name, content, 0o640)
        return folder

    def _pod(self) -> str:
        """The name of a pod that kube-controller-manager made."""
        meta, labels = self.workload["metadata"], self.workload["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())

        def ask() -> str | None:
            words = ("get", "pods", "-n", meta["namespace"], "-l", selector, "-o", "name")
            rows = self.plane.kubectl(*words).stdout.split()
            return rows[0].removeprefix("pod/") if rows else None

        return wait_for(ask, f"a pod of {self.name}", seconds=SECONDS)

    def _environment(self, spec: Json) -> dict[str, str]:
        fields = {
            "metadata.namespace": self.workload["metadata"]["namespace"],
            "metadata.name": self._pod(),
            "spec.nodeName": self.node,
        }
        given = {
            e["name"]: e.get("value") or fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
            for e in spec.get("env", [])
        }
        api = {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        api["KUBERNETES_SERVICE_PORT"] = str(self.plane.port)
        return {
            **given,
            **api,
            "KUBECONFIG": "",
            "HOME": "/nonexistent",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        }

    @staticmethod
    def _url(spec: Json, probe: Json) -> str:
        ports = {port["name"]: port["containerPort"] for port in spec["ports"]}
        scheme = probe.get("scheme", "HTTP").lower()
        return f"{scheme}://127.0.0.1:{ports[probe['port']]}{probe['path']}"


def _programs() -> list[Path]:
    """This checkout, Python and the programs of envtest; a volume may be above them (``/tmp``)."""
    cache = locate.program("helm").parents[1]
    programs = {ROOT, Path(sys.prefix), Path(sys.base_prefix), cache}
    return sorted(p for p in programs if not any(q in p.parents for q in (*programs, Path("/usr"))))


def _privileges(security: Json) -> list[str]:
    """The user of the container, without capabilities unless it is privileged."""
    if security.get("privileged"):
        return []
    user = str(security["runAsUser"])
    ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return ["setpriv", *ids, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


def _write(path: Path, content: bytes, mode: int) -> None:
    """A file of a volume, with the group that ``fsGroup`` gives it."""
    path.write_bytes(content)
    os.chown(path, 0, 65532)
    path.chmod(mode)


def answers(url: str) -> bool:
    """Whether a probe succeeds; like a kubelet it does not verify certificates."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
