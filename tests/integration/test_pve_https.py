"""The client over HTTPS against the simulator on sockets: token, ticket, several hosts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moxwell.lab.proxmox import certs, chaos
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.world import read_world
from moxwell.pve import errors, steps
from moxwell.pve.client import PveWriter
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.steps import GuestRef, StorageOnHost
from moxwell.pve.transport import CertificateRefused, FileUpload, PveHttpTransport
from moxwell.pve.values import Blob, SecretValue
from moxwell.testing.loop import LoopClock, VirtualLoop
from moxwell.testing.small_region import FEATURES, OURS, TOKEN, grant, world_text

G = GuestRef("r1", "pve1", 100, OURS)


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[tuple[Simulator, RegionConfig]]:
    """A simulator on sockets, and the configuration that reaches it."""
    clock = LoopClock()
    regions = read_world(world_text("8.4.21"), "world.yaml", clock.now().timestamp())
    grant(regions["r1"], "moxwell@pve", FEATURES)
    regions["r1"].access.users["moxwell@pve"].password = "hunter2"
    made = certs.make(folder, clock.now())
    simulator = Simulator(regions, clock, tls=made.context())
    await simulator.start()
    token_id, _, secret = TOKEN.partition("=")
    config = RegionConfig(
        region="r1",
        urls=tuple(url for (name, _), url in simulator.urls.items() if name == "r1"),
        auth=TokenAuth(token_id, SecretValue(secret)),
        fingerprint=made.fingerprint().replace(":", "").lower(),
    )
    try:
        yield simulator, config
    finally:
        await simulator.stop()


def play(story: object) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story)  # type: ignore[arg-type]


def test_the_life_of_a_machine_through_a_region(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (simulator, config):
            regions = Regions([config], LoopClock())
            runner = asyncio.create_task(regions.run())
            region = regions["r1"]
            await region.inventory.wait_synced()
            new = GuestRef("r1", "pve2", 300, OURS)
            iso = steps.UploadIso(
                storage=StorageOnHost("r1", "pve2", "shared"),
                mark=OURS,
                filename=steps.iso_name(OURS),
                content=Blob(bytes(range(256)) * 1024),
            )
            for step in (
                steps.Clone(new, template=9000, template_host="pve1", name="m1"),
                iso,
                steps.Configure(
                    new,
                    changes={"cores": "2", "ide2": f"{iso.volid},media=cdrom", "tags": OURS.tags()},
                ),
                steps.ResizeDisk(new, slot="scsi0", size_gib=4),
                steps.Start(new),
                steps.EjectIso(new, slot="ide2"),
                steps.DeleteVolume(storage=iso.storage, mark=OURS, volid=iso.volid),
                steps.Stop(new),
                steps.Destroy(new),
            ):
                upid = await region.perform(step, "m1")
                if upid is not None:
                    assert (await region.tasks.wait_ended(upid)).ok
            assert region.inventory.find(300) is None
            assert sorted(simulator.regions["r1"].guests) == [100, 200, 9000]
            runner.cancel()
            await asyncio.wait([runner])

    play(story())


def test_an_upload_is_stored_unchanged(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096

    async def story() -> None:
        async with simulated(tmp_path) as (simulator, config):
            wire = PveHttpTransport(config, LoopClock())
            await PveWriter(wire).storage.upload("pve1", "shared", FileUpload.of("a.iso", data))
            await asyncio.sleep(5)
            volumes = simulator.regions["r1"].storages["shared"].volumes_on("pve1")
            (volume,) = [v for v in volumes.values() if v.name == "iso/a.iso"]
            assert volume.size == len(data)
            await wire.close()

    play(story())


def test_a_user_with_a_password(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (_, config):
            good = PasswordAuth("moxwell@pve", SecretValue("hunter2"))
            wire = PveHttpTransport(_with(config, good), LoopClock())
            await PveWriter(wire).qemu.configure("pve1", 100, {"cores": 2})
            assert (await PveWriter(wire).qemu.config("pve1", 100)).cores == 2
            await wire.close()
            wrong = PveHttpTransport(
                _with(config, PasswordAuth("moxwell@pve", SecretValue("x"))), LoopClock()
            )
            with pytest.raises(errors.CredentialsRefused):
                await PveWriter(wrong).version()
            await wrong.close()

    play(story())


def test_a_wrong_token_and_a_wrong_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (_, config):
            wrong = _with(config, TokenAuth("moxwell@pve!test", SecretValue("nope-nope")))
            wire = PveHttpTransport(wrong, LoopClock())
            with pytest.raises(errors.CredentialsRefused) as caught:
                await PveWriter(wire).version()
            assert "nope-nope" not in str(caught.value)
            await wire.close()
            verified = PveHttpTransport(
                RegionConfig(region="r1", urls=config.urls, auth=config.auth), LoopClock()
            )
            with pytest.raises(CertificateRefused):
                await PveWriter(verified).version()
            await verified.close()

    play(story())


def test_requests_survive_the_loss_of_the_preferred_host(tmp_path: Path) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (simulator, config):
            runtime = simulator.engine.runtimes["r1"]
            wire = PveHttpTransport(config, LoopClock())
            pve = PveWriter(wire)
            chaos.perform(runtime, "host-down", {"node": "pve1"})
            assert await pve.version()  # answered by the other
            with pytest.raises(errors.HostUnreachable):
                await pve.qemu.config("pve1", 100)
            assert not wire.statistics().breaker_open
            chaos.perform(runtime, "host-up", {"node": "pve1"})
            assert (await pve.qemu.config("pve1", 100)).name == "ours"
            await wire.close()

    play(story())


def _with(config: RegionConfig, auth: TokenAuth | PasswordAuth) -> RegionConfig:
    return RegionConfig(
        region=config.region, urls=config.urls, auth=auth, fingerprint=config.fingerprint
    )
