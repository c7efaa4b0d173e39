"""Genuine kubeadm accepts the configurations that Moxwell's bootstrap provider makes."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from envtest.table import KUBERNETES
from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import APIEndpoint
from moxwell.api.cozystack import NodeGroup
from moxwell.controllers.tenancy.cluster.node_groups import kubeadm_spec
from moxwell.embedded.clusterapi.kubeadm import cloud_config
from moxwell.management.objects import cluster_objects
from moxwell.management.spec import ManagementSpec, ManagementZone

pytestmark = [pytest.mark.genuine]
Json = dict[str, Any]
Program = Callable[[str], Path]
TOKEN = "abcdef.0123456789abcdef"
HASH = "sha256:" + "0" * 64
ENDPOINT = APIEndpoint(host="192.0.2.40", port=6443)
SPEC = ManagementSpec(
    kubernetes=KUBERNETES,
    endpoint=ENDPOINT.host,
    zones=(ManagementZone(region="north", addresses=("192.0.2.41-192.0.2.49",)),),
    image_repository="registry.example.org/k8s",
)
OBJECTS: dict[str, Json] = {obj["kind"]: obj for _, obj in cluster_objects(SPEC)}


def config_of(spec: Json) -> KubeadmConfig:
    meta = {"name": "m1", "namespace": "default"}
    return msgspec.convert({"metadata": meta, "spec": spec}, KubeadmConfig)


def management() -> Json:
    found: Json = OBJECTS["KubeadmControlPlane"]["spec"]["kubeadmConfigSpec"]
    return found


def init_documents() -> tuple[Json, ...]:
    tree = OBJECTS["Cluster"]
    tree["spec"]["controlPlaneEndpoint"] = msgspec.to_builtins(ENDPOINT)
    config = config_of(management())
    return cloud_config.init_configuration(config, msgspec.convert(tree, Cluster), KUBERNETES)


def join_documents(spec: Json) -> tuple[Json, ...]:
    return (cloud_config.join_configuration(config_of(spec), ENDPOINT, TOKEN, [HASH]),)


GROUP = NodeGroup(name="md0", labels={"tier": "web"}, taints=("dedicated=web:NoSchedule",))
MEMBER = management()["joinConfiguration"] | {"controlPlane": {}}
DOCUMENTS = {
    "the first machine of a management cluster": init_documents(),
    "a further machine of it": join_documents({"joinConfiguration": MEMBER}),
    "a node of a tenant": join_documents(kubeadm_spec(GROUP)),
    "a node without any settings": join_documents({}),
}


def validated(program: Path, documents: tuple[Json, ...], folder: Path) -> tuple[int, str]:
    """What kubeadm says, with the variables of cloud-init replaced as on a node."""
    text = yaml.safe_dump_all(documents, sort_keys=False)
    text = text.replace("{{ ds.meta_data.instance_id }}", "north/1001")
    text = text.replace("{{ local_hostname }}", "m1")
    (folder / "kubeadm.yaml").write_text(text)
    done = subprocess.run(
        [str(program), "config", "validate", "--config", str(folder / "kubeadm.yaml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_kubeadm_accepts(
    envtest_program: Program, tmp_path: Path, documents: tuple[Json, ...]
) -> None:
    code, said = validated(envtest_program("kubeadm"), documents, tmp_path)
    assert (code, "unknown field" in said) == (0, False), said


def test_kubeadm_refuses_an_unknown_field(envtest_program: Program, tmp_path: Path) -> None:
    wrong = {**join_documents({})[0], "nodeRegistrations": {}}
    code, said = validated(envtest_program("kubeadm"), (wrong,), tmp_path)
    assert code != 0
    assert 'unknown field "nodeRegistrations"' in said
