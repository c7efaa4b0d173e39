"""A lab instance of the installed package, controlled by the command line."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moxwell.app.state_dir import StateDir
from moxwell.clock import SystemClock
from moxwell.embedded.controllermanager.resources import DEPLOYMENTS
from moxwell.embedded.ports import free_port
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport

COMMAND = Path(sys.executable).with_name("moxwell")


@dataclass(frozen=True)
class Instance:
    """One instance, identified by its state directory."""

    folder: Path
    name: str

    @property
    def env(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.folder), "KUBECONFIG": str(self.user_kubeconfig)}
        return {**os.environ, **own, "NO_COLOR": "1", "COLUMNS": "200"}

    @property
    def user_kubeconfig(self) -> Path:
        """The file that kubectl of the user reads."""
        return self.folder / "user-kubeconfig"

    @property
    def state(self) -> StateDir:
        return StateDir(self.name, self.env)

    def run(self, *args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command of the instance."""
        done = subprocess.run(
            [str(COMMAND), *args], env={**self.env, "MOXWELL_NAME": self.name},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if check and done.returncode:
            output = f"{done.stdout}{done.stderr}\n{self.log()}"
            raise AssertionError(f"moxwell {' '.join(args)}: {output}")
        return done

    def log(self) -> str:
        return self.state.log.read_text()[-4000:] if self.state.log.exists() else ""

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state.folder / "facts.json").read_text())
        return found

    def link(self) -> str:
        """A dashboard address that works once."""
        found = re.search(r"(http://\S+/enter/\S+)", self.run("status").stdout)
        assert found is not None
        return found[1]

    def deploy(self, cluster: str, name: str, replicas: int) -> None:
        """Create a Deployment in a tenant with its own kubeconfig."""
        text = self.run("cluster", "kubeconfig", cluster).stdout
        asyncio.run(_deploy(text, name, replicas))

    def kill(self) -> None:
        """Kill the daemon with SIGKILL."""
        os.kill(self.facts()["pid"], signal.SIGKILL)


async def _deploy(config: str, name: str, replicas: int) -> None:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "web"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    meta = {"name": name, "namespace": "default"}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    access = kubeconfig.parse(config).access(SystemClock(), {})
    async with KubeTransport(access) as transport:
        await Kube(transport).create(body, DEPLOYMENTS)


def own_ports(folder: Path) -> None:
    """Choose ports that no other instance prefers, also while this one does not run."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in ("api", "dashboard"):
        (folder / f"{each}.port").write_text(str(free_port()))


@contextmanager
def instance(folder: Path, name: str, *up: str) -> Iterator[Instance]:
    """A running instance, purged at the end."""
    made = Instance(folder, name)
    own_ports(made.state.folder)
    try:
        made.run("up", *up)
        yield made
    finally:
        made.run("down", "--purge", check=False)
