"""``moxwell bootstrap`` as a user runs it: two simulated Proxmox clusters over HTTPS, real time."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.api import registry
from moxwell.embedded.ports import free_port
from moxwell.management import operator_components
from support.operator_process import Simulated

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bootstrap")]
SECONDS = 400
KILL_AFTER = (4.0, 9.0, 14.0)


class Bootstrapped:
    """A configuration beside a simulated Proxmox, and the command."""

    def __init__(self, folder: Path, proxmox: Simulated) -> None:
        self.folder, self.proxmox = folder, proxmox
        self.config = folder / "moxwell.yaml"
        zones = [
            {
                "region": name,
                "addresses": [f"10.4{number}.0.10-10.4{number}.0.19"],
                "gateway": f"10.4{number}.0.1",
            }
            for number, name in enumerate(proxmox.regions)
        ]
        section = {
            "kubernetes": "v1.34.1",
            "endpoint": "127.41.0.1",
            "port": free_port("127.41.0.1"),
            "zones": zones,
            "manifests": ["cluster-api.yaml"],
            "operator": "operator.yaml",
        }
        # The API that simulated guests serve has no webhooks, also not for conversions.
        objects = operator_components.configured({"config.yaml": "clusters: []"})
        served = [o for o in objects if not o["kind"].startswith(("Validating", "CustomR"))]
        (folder / "operator.yaml").write_text(yaml.safe_dump_all(served))
        (folder / "cluster-api.yaml").write_text(registry.render_crds(upstream=True))
        tree = yaml.safe_load(proxmox.config()) | {"management_cluster": section}
        self.config.write_text(yaml.safe_dump(tree))
        self.env = os.environ | {"XDG_STATE_HOME": str(folder / "state")}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "moxwell", "bootstrap", "--config", str(self.config)]
        return subprocess.Popen(
            [*command, *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> str:
        process = self.start(*words)
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said
        return said

    def killed(self, seconds: float) -> None:
        """Start the command and kill it."""
        process = self.start()
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)

    def guests(self) -> dict[str, Any]:
        return {
            f"{name}/{vmid}": self.proxmox.regions[name].guests[vmid].started
            for name, vmids in self.proxmox.ours().items()
            for vmid in vmids
        }


def test_a_management_cluster_is_shown_made_in_spite_of_kills_and_removed(tmp_path: Path) -> None:
    with Simulated(tmp_path / "proxmox") as proxmox:
        moxwell = Bootstrapped(tmp_path, proxmox)
        shown = moxwell.run("--dry-run")
        assert "VM 3 in north" in shown
        assert "install moxwell" in shown
        assert moxwell.guests() == {}
        assert not (tmp_path / "state").exists()

        for seconds in KILL_AFTER:
            moxwell.killed(seconds)
        said = moxwell.run()
        assert "manages itself" in said
        made = moxwell.guests()
        assert len(made) == 3
        assert {key.partition("/")[0] for key in made} == {"north", "south"}
        kubeconfig = tmp_path / "management.kubeconfig"
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        assert "127.41.0.1" in kubeconfig.read_text()

        moxwell.run()  # nothing is left to do
        assert moxwell.guests() == made

        moxwell.run("--undo", "--yes")
        assert moxwell.guests() == {}
        assert not (tmp_path / "state" / "moxwell" / "bootstrap-management").exists()
