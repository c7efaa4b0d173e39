"""World files: defaults and errors."""

from pathlib import Path

import pytest

from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.state import SimTask
from moxwell.lab.proxmox.world import load_world, read_world
from moxwell.lab.proxmox.yaml_tree import InvalidFile

ROOT = Path(__file__).parents[4]
NODE = "regions:\n  - name: r\n    nodes:\n      - name: n1\n"


@pytest.mark.parametrize(
    "text, line, field, words",
    [
        pytest.param("", 1, "", "empty", id="an empty file"),
        pytest.param("regions: [", 2, "", "not YAML", id="no YAML"),
        pytest.param("nodes: []\n", 1, "", "field 'regions' is missing", id="no regions"),
        pytest.param("regions:\n  - name: r\n", 2, "regions[0]", "'nodes' is missing",
                     id="no nodes"),
        pytest.param(NODE + "        cpu: 4\n", 5, "regions[0].nodes[0].cpu", "did you mean 'cpus'",
                     id="a field misspelt"),
        pytest.param(NODE + "        cpus: many\n", 5, "regions[0].nodes[0].cpus",
                     "must be an integer", id="a word for a number"),
        pytest.param(NODE + "        memory: 16 fish\n", 5, "regions[0].nodes[0].memory",
                     "must be a size", id="a strange size"),
        pytest.param(NODE + "      - name: n1\n", 5, "regions[0].nodes[1].name", "is defined twice",
                     id="a node twice"),
        pytest.param(NODE + "    version: 7.4\n", 5, "regions[0].version", "must be 8.x or 9.x",
                     id="an old version"),
        pytest.param(NODE + "    api_node: n9\n", 5, "regions[0].api_node",
                     "node 'n9' does not exist",
                     id="an unknown node"),
        pytest.param(NODE + "    storages:\n      - storage: s\n        type: tape\n", 7,
                     "regions[0].storages[0].type", "must be one of", id="an unknown storage type"),
        pytest.param(NODE + "    storages:\n      - storage: s\n        type: dir\n", 6,
                     "regions[0].storages[0]", "'path' is missing", id="a dir without a path"),
        pytest.param(NODE + "    storages:\n      - storage: s\n        type: rbd\n"
                     "        path: /x\n", 8, "regions[0].storages[0].path", "has no option 'path'",
                     id="an option of another type"),
        pytest.param(NODE + "    guests:\n      - vmid: 99\n", 6, "regions[0].guests[0].vmid",
                     "at least 100", id="a small vmid"),
        pytest.param(NODE + "    guests:\n      - vmid: 100\n        config:\n"
                     "          scsi0: nope:vm-100-disk-0,size=1G\n", 6, "regions[0].guests[0]",
                     "storage 'nope'", id="a drive on no storage"),
        pytest.param(NODE + "    access:\n      acl:\n        - {path: /, role: Nope}\n",
                     7, "regions[0].access.acl[0].role", "role 'Nope' does not exist",
                     id="an unknown role"),
        pytest.param(NODE + "    pace: {boot: soon}\n", 5, "regions[0].pace.boot",
                     "must be a number", id="a pace in words"),
    ],
)  # fmt: skip
def test_an_error_names_line_and_field(text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read_world(text, "w.yaml", 0)
    message = str(caught.value)
    assert message.startswith(f"w.yaml:{line}: {field}")
    assert words in message


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("src/moxwell/lab/proxmox/worlds/lab.yaml", id="the lab"),
        pytest.param("tests/conformance/worlds/pve-8.4.yaml", id="the recordings on 8.4"),
        pytest.param("tests/conformance/worlds/pve-9.2.yaml", id="the recordings on 9.2"),
    ],
)
def test_the_shipped_world_files_are_valid(path: str) -> None:
    for region in load_world(ROOT / path, 0).values():
        assert region.hosts
        assert region.storages


def test_state_is_saved_and_resumed(tmp_path: Path) -> None:
    regions = load_world(ROOT / "src/moxwell/lab/proxmox/worlds/lab.yaml", 1000)
    task = SimTask("UPID:x", "east1", 1, 1, 1, "qmclone", "9000", "root@pam")
    regions["east"].tasks[task.upid] = task
    state_file.save_file(regions, tmp_path / "state.json")
    again = state_file.load_file(tmp_path / "state.json")
    assert again["east"].tasks["UPID:x"].exitstatus == "unexpected status"
    task.exitstatus, task.endtime = "unexpected status", 1
    assert again == regions


def test_a_broken_state_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("{")
    with pytest.raises(InvalidFile, match=r"state\.json"):
        state_file.load_file(path)
