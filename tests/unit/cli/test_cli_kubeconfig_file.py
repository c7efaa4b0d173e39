"""A tenant cluster in the user's kubeconfig: entries of others stay, files are private."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.cli import kubeconfig_file
from moxwell.cli.kubeconfig_file import KubeconfigLocked
from moxwell.errors import Invalid

OWN = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "demo", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "admin", "user": {"token": "secret"}}],
    "contexts": [{"name": "x", "context": {"cluster": "demo", "user": "admin", "namespace": "n"}}],
    "current-context": "x",
}
OTHERS = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "demo", "cluster": {"server": "https://example:6443"}}],
    "users": [{"name": "admin", "user": {"token": "other"}}],
    "contexts": [{"name": "prod", "context": {"cluster": "demo", "user": "admin"}}],
    "current-context": "prod",
    "extensions": [{"name": "kept"}],
}


def entry(found: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    (one,) = [e for e in found[kind] if e["name"] == name]
    return dict(one)


def test_a_merge_keeps_what_others_have_and_replaces_its_own() -> None:
    once = kubeconfig_file.merged(OTHERS, OWN, "moxwell-demo")
    again = kubeconfig_file.merged(once, OWN, "moxwell-demo")
    assert again == once
    assert once["current-context"] == "moxwell-demo"
    assert once["extensions"] == OTHERS["extensions"]
    for kind in ("clusters", "users", "contexts"):
        assert once[kind][:1] == OTHERS[kind]
        assert [e["name"] for e in once[kind][1:]] == ["moxwell-demo"]
    context = entry(once, "contexts", "moxwell-demo")["context"]
    assert context == {"cluster": "moxwell-demo", "user": "moxwell-demo", "namespace": "n"}


def test_a_removal_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHERS))
    kubeconfig_file.add(path, yaml.safe_dump(OWN).encode(), "moxwell-demo")
    assert path.stat().st_mode & 0o777 == 0o600
    assert kubeconfig_file.remove(path, "moxwell-demo")
    assert not kubeconfig_file.remove(path, "moxwell-demo")
    left = yaml.safe_load(path.read_text())
    assert {k: left[k] for k in OTHERS if k != "current-context"} == {
        k: v for k, v in OTHERS.items() if k != "current-context"
    }
    assert left["current-context"] == ""


def test_a_file_that_is_no_kubeconfig_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for text in ("- a list\n", "{broken: s3cret"):
        path.write_text(text)
        with pytest.raises(Invalid, match="it is unchanged") as raised:
            kubeconfig_file.add(path, yaml.safe_dump(OWN).encode(), "moxwell-demo")
        assert "s3cret" not in str(raised.value)
        assert path.read_text() == text
    assert not (tmp_path / "config.lock").exists()


def test_a_locked_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "config"
    (tmp_path / "config.lock").touch()
    with pytest.raises(KubeconfigLocked):
        kubeconfig_file.add(path, yaml.safe_dump(OWN).encode(), "moxwell-demo")
    assert not path.exists()


@pytest.mark.parametrize(
    ("instance", "cluster", "namespace", "context"),
    [
        ("lab", "demo", "tenant-demo", "moxwell-demo"),
        ("two", "demo", "tenant-demo", "moxwell-two-demo"),
        ("lab", "web", "tenant-demo", "moxwell-tenant-demo-web"),
    ],
)
def test_contexts_have_names_of_their_own(
    instance: str, cluster: str, namespace: str, context: str
) -> None:
    assert kubeconfig_file.context_name(instance, cluster, namespace) == context


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HOME": "/h"}, "/h/.kube/config"),
        ({"HOME": "/h", "KUBECONFIG": "/a:/b"}, "/a"),
        ({"HOME": "/h", "KUBECONFIG": ""}, "/h/.kube/config"),
    ],
)
def test_the_file_is_the_one_that_kubectl_writes(environ: dict[str, str], path: str) -> None:
    assert kubeconfig_file.default_path(environ) == Path(path)
