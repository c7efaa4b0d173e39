"""Genuine Helm on a chart of this repository."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
Rendered = dict[tuple[str, str], Json]
CHARTS = Path(__file__).parents[2] / "charts"


@dataclass(frozen=True, slots=True)
class Helm:
    """``helm`` with a home of its own; ``kubeconfig`` is needed by all but ``template``."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None

    def run(self, *words: str, values: Json | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command; ``values`` become a file."""
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        given = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return subprocess.run(
            [str(self.program), *words, *given, *(["-f", str(file)] if values else [])],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            timeout=300,
        )

    def template(self, chart: str, space: str, values: Json | None = None) -> Rendered:
        """The rendered objects by kind and name."""
        done = self.run("template", "moxwell", str(CHARTS / chart), "-n", space, values=values)
        assert done.returncode == 0, done.stderr
        rows = [doc for doc in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if doc]
        found = {(o["kind"], o["metadata"]["name"]): o for o in rows}
        assert len(found) == len(rows), "two objects have one name"
        return found
