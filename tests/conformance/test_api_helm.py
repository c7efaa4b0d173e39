"""Upstream Helm on both servers: install, upgrade, history, roll back, uninstall."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from apisuite import embedded
from envtest.control_plane import ControlPlane

pytestmark = [pytest.mark.genuine, pytest.mark.xdist_group("http")]
CHART = {"apiVersion": "v2", "name": "small", "version": "0.1.0", "appVersion": "1"}
TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  labels: {app.kubernetes.io/managed-by: {{ .Release.Service }}}
data:
  revision: {{ .Release.Revision | quote }}
  colour: {{ .Values.colour }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 0
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec: {containers: [{name: main, image: "registry.example/x:{{ .Values.colour }}"}]}
"""
HOOK = """
apiVersion: v1
kind: Secret
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: before-hook-creation}
"""
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart") / "small"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump(CHART))
    (folder / "values.yaml").write_text("colour: red\n")
    (folder / "templates" / "all.yaml").write_text(TEMPLATE)
    (folder / "templates" / "hook.yaml").write_text(HOOK)
    return folder


@pytest.fixture(scope="module")
def embedded_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    process, config = embedded.start(tmp_path_factory.mktemp("helm-embedded"))
    yield config
    process.stop()


@pytest.fixture(params=["genuine", "embedded"])
def config(request: pytest.FixtureRequest, genuine: ControlPlane, embedded_config: Path) -> Path:
    return genuine.kubeconfig if request.param == "genuine" else embedded_config


@pytest.fixture
def helm(config: Path, envtest_program: Callable[[str], Path], tmp_path: Path) -> Helm:
    program = envtest_program("helm")

    def run(*args: str, program: Path = program) -> str:
        env = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(config)}
        done = subprocess.run(
            [str(program), *args], env=env, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_install_upgrade_rollback_uninstall(
    helm: Helm, chart: Path, envtest_program: Callable[[str], Path]
) -> None:
    def colour() -> str:
        path = "jsonpath={.data.colour}{.data.revision}"
        return helm("get", "configmap", "rel", "-o", path, program=envtest_program("kubectl"))

    assert "STATUS: deployed" in helm("install", "rel", str(chart))
    assert colour() == "red1"
    assert "REVISION: 2" in helm("upgrade", "rel", str(chart), "--set", "colour=blue")
    assert colour() == "blue2"
    assert "Upgrade complete" in helm("history", "rel")
    helm("rollback", "rel", "1")
    assert colour() == "red1"
    assert "rel" in helm("list", "-q")
    helm("uninstall", "rel")
    assert helm("list", "-q").strip() == ""
