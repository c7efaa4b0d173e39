"""docs/tutorial-storage.md as a person follows it: each of its commands, with a genuine kubectl.

Beside it what the page promises: words on the claim when something is wrong, and nothing left over.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from envtest.plugin import require
from support.lab_inspector import eventually, quick_world
from support.lab_instance import instance
from support.storage_tutorial import TutorialShell, blocks, places

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("storage-tutorial")]
SMALL = {"storage": "tiny", "type": "lvmthin", "vgname": "t", "thinpool": "t",
         "content": ["images"], "capacity": "3G"}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TutorialShell]:
    require("kubectl")
    folder = tmp_path_factory.mktemp("storage")
    world = quick_world(folder)
    tree = yaml.safe_load(world.read_text())
    tree["regions"][1]["storages"].append(SMALL)
    for region in tree["regions"]:
        region["pace"] |= {"bandwidth": "40G", "migration_bandwidth": "40G"}
    world.write_text(yaml.safe_dump(tree))
    with instance(folder, "storage", "--no-demo", "--world", str(world)) as running:
        made = TutorialShell(running, folder)
        made.sh(blocks()[1][0])
        yield made


def test_the_page_can_be_followed_word_by_word(shop: TutorialShell) -> None:
    manifest, steps = blocks()
    (shop.folder / "db.yaml").write_text(manifest)
    eventually(lambda: "proxmox-local-zfs" in shop.sh(steps[0].splitlines()[-1]), "classes")
    shop.sh(steps[1])
    zones = places(shop)
    seen = shop.sh(steps[2])
    assert len(re.findall(r"default/data-db-\d +attached", seen)) == 2
    shop.sh(steps[3])
    shop.sh(steps[4])
    assert places(shop) == {"data-db-0": zones["data-db-1"], "data-db-1": zones["data-db-1"]}
    assert {d["size"] for d in shop.disks() if "zfs" in d["volume"]} == {"10 GiB", "20 GiB"}
    shop.sh(steps[5])
    eventually(lambda: "data-db" not in shop.sh("kubectl get pv"), "no volume is left")
    assert not [d for d in shop.disks() if "zfs" in d["volume"]]


def claim(name: str, klass: str, size: str = "1Gi") -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": klass,
        "resources": {"requests": {"storage": size}},
    }
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return head | {"metadata": {"name": name}, "spec": spec}


def pod(name: str, of: str) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": of}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def klass(name: str, mode: str = "Immediate", **parameters: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "csi.moxwell.dev",
        "volumeBindingMode": mode,
        "parameters": parameters,
    }


@pytest.mark.parametrize(
    ("name", "made", "words"),
    [
        pytest.param(
            "huge", klass("huge", storage="tiny"),
            ("InsufficientCapacity", "at most 3 GiB free, not 50"),
            id="no room",
        ),
        pytest.param(
            "nowhere", klass("nowhere", storage="tape"), ("ProvisioningFailed", "storage 'tape'"),
            id="a storage that nobody has",
        ),
        pytest.param(
            "elsewhere", klass("elsewhere", storage="ceph"), ("ProvisioningFailed", "topology"),
            id="a storage of another region",
        ),
        pytest.param(
            "typo", klass("typo", storage="nfs", chache="none"), ("did you mean cache?",),
            id="a parameter with a typing mistake",
        ),
    ],
)  # fmt: skip
def test_a_claim_says_what_is_wrong(
    shop: TutorialShell, name: str, made: dict[str, Any], words: tuple[str, ...]
) -> None:
    shop.apply(made, claim(name, name, "50Gi"))
    shop.waits_for(f"pvc/{name}", *words)
    shop.sh(f"kubectl delete pvc/{name} storageclass/{name}")


def test_a_pod_that_fits_nowhere_says_so(shop: TutorialShell) -> None:
    made = klass("late", "WaitForFirstConsumer", storage="tiny")
    shop.apply(made, claim("late", "late", "50Gi"), pod("late", "late"))
    shop.waits_for("pod/late", "did not have enough free storage")
    shop.waits_for("pvc/late", "waiting for first consumer")
    shop.sh("kubectl delete pod/late pvc/late storageclass/late")


def test_a_claim_of_a_class_that_is_not_there_says_so(shop: TutorialShell) -> None:
    shop.apply(claim("lost", "nothing"))
    shop.waits_for("pvc/lost", 'storageclass.storage.k8s.io "nothing" not found')
    shop.sh("kubectl delete pvc/lost")


def test_a_disk_that_nobody_knows_can_be_destroyed_and_no_other(shop: TutorialShell) -> None:
    shop.apply(klass("kept", storage="nfs") | {"reclaimPolicy": "Retain"}, claim("kept", "kept"))
    shop.waits_for("pvc/kept", "Bound")
    spec = next(p["spec"] for p in shop.objects("pv") if p["spec"]["claimRef"]["name"] == "kept")
    disk, volume = (
        spec["csi"]["volumeHandle"],
        "kubectl get pvc kept -o jsonpath={.spec.volumeName}",
    )
    refused = shop.lab.run("volume", "delete", disk, "--yes", check=False)
    assert refused.returncode == 1
    assert "claim default/kept" in refused.stderr
    shop.sh(f"pv=$({volume}); kubectl delete pvc/kept; kubectl delete pv/$pv")
    assert [d["state"] for d in shop.disks() if d["volume"] == disk] == ["no PersistentVolume"]
    assert "deleted" in shop.sh(f"moxwell volume delete {disk} --yes")
    assert disk not in {d["volume"] for d in shop.disks()}
    shop.sh("kubectl delete storageclass/kept")


def test_commands_refuse_in_one_sentence(shop: TutorialShell) -> None:
    for args, said in (
        (("migrate", "nope", "fra1"), '"nope" not found'),
        (("list", "--config", "/nope.yaml"), "cannot read /nope.yaml"),
    ):
        done = shop.lab.run("volume", *args, check=False)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
