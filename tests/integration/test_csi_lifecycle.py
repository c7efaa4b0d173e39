"""A volume from create to delete on every storage in both regions."""

from pathlib import Path

import pytest

from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi import CsiEnvironment, node_id
from moxwell.testing.loop import run_virtual

GIB = 1 << 30
MODE = csi.VolumeCapability.AccessMode
MOUNT = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=MODE(mode=MODE.SINGLE_NODE_WRITER),
)
BLOCK = csi.VolumeCapability(
    block=csi.VolumeCapability.BlockVolume(),
    access_mode=MODE(mode=MODE.SINGLE_NODE_WRITER),
)


def create(name: str, storage: str, region: str, host: str) -> csi.CreateVolumeRequest:
    segments = {"topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": host}
    return csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=GIB),
        volume_capabilities=[MOUNT],
        parameters={"storage": storage, "ssd": "true"},
        accessibility_requirements=csi.TopologyRequirement(
            requisite=[csi.Topology(segments=segments)]
        ),
    )


@pytest.mark.parametrize("region", ["r1", "r2"])
@pytest.mark.parametrize("capability", [MOUNT, BLOCK], ids=["mounted", "block"])
@pytest.mark.parametrize("storage", ["local", "local-lvm", "local-zfs", "ceph", "nfs", "drbd"])
def test_a_volume_from_create_to_delete(
    tmp_path: Path, storage: str, region: str, capability: csi.VolumeCapability
) -> None:
    async def scenario() -> None:
        env = CsiEnvironment(tmp_path)
        async with env.running():
            control, node = env.controller, env.node(101, region)
            made = await control.create_volume(create("pvc-1", storage, region, f"{region}-h0"))
            volume = made.volume.volume_id
            shared = storage in ("ceph", "nfs", "drbd")
            assert volume.startswith(f"{region}/{'' if shared else f'{region}-h0'}/{storage}/")
            attached = await control.controller_publish_volume(
                csi.ControllerPublishVolumeRequest(
                    volume_id=volume,
                    node_id=node_id(101, region),
                    volume_capability=capability,
                    volume_context=made.volume.volume_context,
                )
            )
            staging, target = str(tmp_path / "staging"), str(tmp_path / "target")
            await node.node_stage_volume(
                csi.NodeStageVolumeRequest(
                    volume_id=volume,
                    staging_target_path=staging,
                    volume_capability=capability,
                    publish_context=attached.publish_context,
                )
            )
            await node.node_publish_volume(
                csi.NodePublishVolumeRequest(
                    volume_id=volume,
                    staging_target_path=staging,
                    target_path=target,
                    volume_capability=capability,
                    publish_context=attached.publish_context,
                )
            )
            grown = await control.controller_expand_volume(
                csi.ControllerExpandVolumeRequest(
                    volume_id=volume, capacity_range=csi.CapacityRange(required_bytes=2 * GIB)
                )
            )
            assert grown.capacity_bytes == 2 * GIB
            await node.node_expand_volume(
                csi.NodeExpandVolumeRequest(
                    volume_id=volume, volume_path=target, volume_capability=capability
                )
            )
            seen = await node.node_get_volume_stats(
                csi.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=target)
            )
            assert seen.usage[0].total == 2 * GIB
            await node.node_unpublish_volume(
                csi.NodeUnpublishVolumeRequest(volume_id=volume, target_path=target)
            )
            await node.node_unstage_volume(
                csi.NodeUnstageVolumeRequest(volume_id=volume, staging_target_path=staging)
            )
            await control.controller_unpublish_volume(
                csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node_id(101, region))
            )
            assert env.guests_with(volume.split("/", 3)[3], region) == []
            await control.delete_volume(csi.DeleteVolumeRequest(volume_id=volume))
            assert env.volumes(storage, region) == []
        await env.close()

    run_virtual(scenario())
