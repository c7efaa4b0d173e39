"""Settings of the autoscaler's provider: flags, environment and files of the genuine provider."""

import json
from pathlib import Path

import pytest

from moxwell.app import autoscaler_files
from moxwell.app.autoscaler_files import AutoscalerFiles
from moxwell.errors import Invalid
from moxwell.pve import config
from moxwell.scheduling.numa.host_numa import NodePolicy

TYPES = [{"name": "x.1", "capacity": {"cpu": "1", "memory": "2Gi", "pods": "9"}}]
HOSTS = {"r1": {"pve1": {"reservedcpus": [0], "cpuovercommit": 2.5}}}
SHARED = Path(__file__).parents[4] / "shared" / "manifests" / "karpenter"


def test_nothing_is_needed(tmp_path: Path) -> None:
    found = autoscaler_files.load("", tmp_path, AutoscalerFiles())
    assert (found.catalogue.sizes, dict(found.hosts)) == ((), {})
    assert found.catalogue.node_policy is NodePolicy.SIMPLE
    assert dict(found.machine_defaults().spec) == {}


def test_names_in_the_file_are_relative_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "types.json").write_text(json.dumps(TYPES))
    (tmp_path / "hosts.json").write_text(json.dumps(HOSTS))
    text = (
        "features: {instanceTypesFile: types.json, nodeSettingFile: hosts.json, "
        "nodePolicy: numa, proxmoxVMID: 20000}"
    )
    found = autoscaler_files.load(text, tmp_path, AutoscalerFiles(node_policy="static"))
    assert [size.name for size in found.catalogue.sizes] == ["x.1"]
    assert found.hosts["r1"]["pve1"].cpuovercommit == 2.5
    assert found.catalogue.node_policy is NodePolicy.STATIC
    assert found.machine_defaults().spec["vmIDRange"]["start"] == 20000


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("features: {nodePolicy: fast}", AutoscalerFiles(), "simple, numa, static"),
        ("features: {proxmoxVMID: 7}", AutoscalerFiles(), "lowest VMID"),
        ("features: {instanceTypesFile: [a]}", AutoscalerFiles(), "features.instanceTypesFile"),
        ("", AutoscalerFiles(instance_types_file="missing.json"), "cannot read missing.json"),
    ],
)
def test_a_mistake_is_named(
    text: str, flags: AutoscalerFiles, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match=message):
        autoscaler_files.load(text, tmp_path, flags)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared manifests are not here")
def test_the_files_of_the_genuine_provider_are_read_unchanged() -> None:
    flags = AutoscalerFiles(
        instance_types_file=str(SHARED / "hack-instance-types.json"),
        node_setting_file=str(SHARED / "hack-nodes-settings.json"),
    )
    text = (SHARED / "hack-proxmox-config.yaml").read_text()
    found = autoscaler_files.load(text, SHARED, flags)
    assert len(found.catalogue.sizes) >= 6
    assert found.hosts["region-1"]["rnd-3"].reservedcpus == (0, 4)
    assert [c.region for c in config.parse(text)] == ["cluster-1", "cluster-2"]
