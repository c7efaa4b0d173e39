"""``moxwell bootstrap`` on a new Proxmox: it makes the template of its machines, and removes it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from envtest.plugin import require
from moxwell.api import registry
from moxwell.embedded.ports import free_port
from moxwell.management import operator_components
from support.new_proxmox import NewProxmox

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("own-pages")]
BOOTSTRAP = "moxwell bootstrap --config moxwell.yaml"
ENDPOINT = "127.42.0.1"


@pytest.fixture
def proxmox(tmp_path: Path) -> Iterator[NewProxmox]:
    require("kubectl")
    made = NewProxmox(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.reader.leave()


def configure(folder: Path) -> None:
    """Add the management cluster to the configuration that ``moxwell init`` wrote."""
    # The API that simulated guests serve has no webhooks, also not for conversions.
    objects = operator_components.configured({"config.yaml": "clusters: []"})
    served = [o for o in objects if not o["kind"].startswith(("Validating", "CustomR"))]
    (folder / "operator.yaml").write_text(yaml.safe_dump_all(served))
    (folder / "cluster-api.yaml").write_text(registry.render_crds(upstream=True))
    zone = {
        "region": "north",
        "addresses": ["10.42.0.10-10.42.0.19"],
        "gateway": "10.42.0.1",
    }
    section = {
        "kubernetes": "v1.34.1",
        "endpoint": ENDPOINT,
        "port": free_port(ENDPOINT),
        "zones": [zone],
        "replicas": 1,
        "template": {"image": "ubuntu-24.04"},
        "manifests": ["cluster-api.yaml"],
        "operator": "operator.yaml",
    }
    file = folder / "moxwell.yaml"
    tree = yaml.safe_load(file.read_text()) | {"management_cluster": section}
    file.write_text(yaml.safe_dump(tree))


def templates(proxmox: NewProxmox) -> list[str]:
    code, said = proxmox.reader.shell("moxwell template list --config moxwell.yaml -o json")
    assert code == 0, said
    return [f"{row['host']} {row['name']} {row['kubernetes']}" for row in json.loads(said)]


def test_the_template_of_the_machines_is_made_and_removed(proxmox: NewProxmox) -> None:
    proxmox.run("moxwell init --url https://pve1.example.org:8006 --region north")
    configure(proxmox.reader.folder)
    code, said = proxmox.reader.shell(f"{BOOTSTRAP} --dry-run")
    assert code == 0, said
    assert templates(proxmox) == []
    code, said = proxmox.reader.shell(BOOTSTRAP)
    assert code == 0, said
    assert "manages itself" in said
    assert templates(proxmox) == [f"pve{n} management-node v1.34.1" for n in (1, 2)]
    code, said = proxmox.reader.shell(f"{BOOTSTRAP} --undo --yes")
    assert code == 0, said
    assert templates(proxmox) == []
