"""The ValidatingAdmissionPolicy of the chart on a genuine API server: annotations of classes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from envtest import locate
from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from envtest.process import wait_for
from moxwell.api import registry
from moxwell.api.karpenter.annotations import RULES, annotation_errors
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from support.helm import Helm

pytestmark = pytest.mark.genuine
KIND = (ProxmoxNodeClass.resource.group, ProxmoxNodeClass.resource.kind)
SCALING = {"operator": {"karpenter": True, "scaledCluster": "capi/own"}}
TEXTS = ("", "0", "1", "07", " 3 ", "20", "21", "-1", "x", "1.5", "simple", "static", "Static",
         "pinned", "2", "1024", "2Mi")  # fmt: skip


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require(*PROGRAMS, "helm")
    with ControlPlane(tmp_path / "plane") as made:
        made.start()
        crds = [c for c in registry.make_karpenter_crds() if "proxmoxnodeclass" in str(c["spec"])]
        rendered = Helm(locate.program("helm"), tmp_path).template("moxwell", "proxmox", SCALING)
        policy = [obj for (_, name), obj in rendered.items() if name == "moxwell-node-classes"]
        assert len(policy) == 2
        text = yaml.safe_dump_all([*crds, *policy])
        made.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield made


def node_class(annotation: str, value: str) -> str:
    body = {
        "apiVersion": ProxmoxNodeClass.resource.api_version,
        "kind": KIND[1],
        "metadata": {"name": "default", "annotations": {annotation: value}},
        "spec": {"instanceTemplateRef": {"kind": "ProxmoxUnmanagedTemplate", "name": "ubuntu"}},
    }
    return json.dumps(body)


def refusal(plane: ControlPlane, annotation: str, value: str) -> str:
    """Why a node class with this annotation is refused; empty if it is admitted."""
    text = node_class(annotation, value)
    done = plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=text, check=False)
    return done.stderr if done.returncode else ""


def test_the_policy_refuses_what_our_own_admission_refuses(plane: ControlPlane) -> None:
    wait_for(lambda: refusal(plane, RULES[KIND][0].annotation, "x") or None, "the policy")
    for rule in RULES[KIND]:
        for text in TEXTS:
            ours = annotation_errors(*KIND, json.loads(node_class(rule.annotation, text)), None)
            theirs = refusal(plane, rule.annotation, text)
            assert bool(ours) == bool(theirs), (rule.annotation, text, theirs)
            if theirs:
                assert f"metadata.annotations[{rule.annotation}]: {rule.advice}" in theirs


def test_a_stored_value_does_not_refuse_another_change(plane: ControlPlane) -> None:
    name = RULES[KIND][0].annotation
    wait_for(lambda: refusal(plane, name, "x") or None, "the policy")
    binding = plane.kubectl(
        "get", "validatingadmissionpolicybinding", "moxwell-node-classes", "-o", "yaml"
    ).stdout
    plane.kubectl("delete", "validatingadmissionpolicybinding", "moxwell-node-classes")
    wait_for(lambda: None if refusal(plane, name, "x") else True, "the end of the policy")
    plane.kubectl("create", "-f", "-", stdin=node_class(name, "x"))
    kept = yaml.safe_load(binding)
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        kept["metadata"].pop(field, None)
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(kept))
    wait_for(lambda: refusal_of_change(plane, name, "y") or None, "the policy")
    plane.kubectl("label", "proxmoxnodeclass", "default", "team=a")
    assert f"metadata.annotations[{name}]" in refusal_of_change(plane, name, "-1")
    assert refusal_of_change(plane, name, "2") == ""


def refusal_of_change(plane: ControlPlane, annotation: str, value: str) -> str:
    pair = f"{annotation}={value}"
    done = plane.kubectl("annotate", "--overwrite", "--dry-run=server", "proxmoxnodeclass",
                         "default", pair, check=False)  # fmt: skip
    return done.stderr if done.returncode else ""
