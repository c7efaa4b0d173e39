"""The storage tutorial in a tenant whose control plane is genuine, with Moxwell outside of it.

The management API is the embedded one; the tenant has its own kube-apiserver, controller manager
and scheduler, and no Proxmox credential. What they think of our objects is theirs to say.
"""

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from envtest.plugin import require
from moxwell.app.region_access import TOKEN_SECRET
from support.lab_inspector import eventually, quick_world
from support.lab_instance import instance
from support.storage_tutorial import TutorialShell, blocks, places

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("storage-genuine")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TutorialShell]:
    require("kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
    folder = tmp_path_factory.mktemp("genuine")
    world = quick_world(folder)
    tree = yaml.safe_load(world.read_text())
    for region in tree["regions"]:
        region["pace"] |= {"bandwidth": "40G", "migration_bandwidth": "40G"}
    world.write_text(yaml.safe_dump(tree))
    options = ("--no-demo", "--control-plane-binaries", "--world", str(world))
    with instance(folder, "storagegen", *options) as running:
        made = TutorialShell(running, folder)
        made.sh(blocks()[1][0])
        yield made


def test_genuine_controllers_bind_and_schedule_our_volumes(shop: TutorialShell) -> None:
    manifest, steps = blocks()
    (shop.folder / "db.yaml").write_text(manifest)
    eventually(lambda: "proxmox-local-zfs" in shop.sh(steps[0].splitlines()[-1]), "classes")
    shop.sh(steps[1])
    zones = places(shop)
    shop.sh(steps[3])
    shop.sh(steps[4])
    assert places(shop) == {"data-db-0": zones["data-db-1"], "data-db-1": zones["data-db-1"]}
    shop.sh(steps[5])
    eventually(lambda: shop.objects("pv") == [], "no volume is left")
    assert shop.disks() == []


def test_the_tenant_holds_nothing_that_opens_proxmox(shop: TutorialShell) -> None:
    for kind in ("secrets", "configmaps", "pods"):
        text = json.dumps(json.loads(shop.sh(f"kubectl get {kind} -A -o json")))
        assert TOKEN_SECRET not in text
        assert base64.b64encode(TOKEN_SECRET.encode()).decode()[:20] not in text
