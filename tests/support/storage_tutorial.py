"""Runs the commands of docs/tutorial-storage.md in a shell against a lab."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from envtest import locate
from support.lab_inspector import eventually
from support.lab_instance import COMMAND, Instance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial-storage.md"
BLOCK = re.compile(r"```(sh|yaml)\n(.*?)```", re.DOTALL)


@dataclass
class TutorialShell:
    """A lab, and a folder for the shell."""

    lab: Instance
    folder: Path

    def sh(self, script: str) -> str:
        """A block of the page; any command that fails ends it."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=self.env,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}\n{self.lab.log()}"
        return done.stdout

    @property
    def env(self) -> dict[str, str]:
        programs = f"{locate.program('kubectl').parent}:{COMMAND.parent}:{os.environ['PATH']}"
        tenant = str(self.folder / "shop.kubeconfig")
        return {**self.lab.env, "MOXWELL_NAME": self.lab.name, "PATH": programs,
                "KUBECONFIG": tenant}  # fmt: skip

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return list(json.loads(self.sh(f"kubectl get {kind} -o json"))["items"])

    def apply(self, *objects: dict[str, Any]) -> None:
        file = self.folder / "made.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        self.sh("kubectl apply -f made.yaml")

    def disks(self) -> list[dict[str, Any]]:
        return list(json.loads(self.sh("moxwell volume list -o json")))

    def waits_for(self, thing: str, *words: str) -> str:
        """Until ``kubectl describe`` says all of the words."""
        said = ""

        def asked() -> bool:
            nonlocal said
            said = self.sh(f"kubectl describe {thing}")
            return all(word in said for word in words)

        try:
            eventually(asked, f"{words} of {thing}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said}\n{self.lab.log()}") from error
        return said


def blocks() -> tuple[str, list[str]]:
    """The manifest, and the commands before and after it."""
    found = BLOCK.findall(PAGE.read_text())
    manifest = next(text for kind, text in found if kind == "yaml")
    return manifest, [text for kind, text in found if kind == "sh"]


def places(shop: TutorialShell) -> dict[str, str]:
    """The host of each claim's disk; and its pod runs in that zone."""
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in shop.objects("nodes")}
    specs = [pv["spec"] for pv in shop.objects("pv") if "zfs" in pv["spec"]["storageClassName"]]
    hosts = {s["claimRef"]["name"]: s["csi"]["volumeHandle"].split("/")[1] for s in specs}
    for pod in shop.objects("pods -l app=db"):
        zone = nodes[pod["spec"]["nodeName"]]["topology.kubernetes.io/zone"]
        assert hosts[f"data-{pod['metadata']['name']}"] == zone
    return hosts
