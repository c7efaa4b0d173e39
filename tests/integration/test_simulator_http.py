"""The simulator over HTTP: reason phrases, body formats, cut connections, the control API."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from moxwell.clock import SystemClock
from moxwell.lab.proxmox import state_file
from moxwell.lab.proxmox.simulator import Simulator, load_regions

WORLD = """
regions:
  - name: r
    cluster: c
    pace: {refusal: 0}
    nodes: [{name: n1}, {name: n2}]
    storages: [{storage: local, type: dir, path: /x, content: "iso,images", capacity: 10G}]
    access:
      users: [{userid: root@pam, password: secret}]
      tokens: [{token: root@pam!t, secret: s, privsep: false}]
"""
AUTH = {"Authorization": "PVEAPIToken=root@pam!t=s"}


@pytest.fixture
async def simulator(tmp_path: Path) -> AsyncIterator[Simulator]:
    world = tmp_path / "world.yaml"
    world.write_text(WORLD)
    clock, state = SystemClock(), tmp_path / "state.json"
    made = Simulator(load_regions(world, state, clock.now().timestamp()), clock, state=state)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(simulator.url(), headers=AUTH) as session:
        yield session


async def test_reason_phrases(client: aiohttp.ClientSession) -> None:
    async with client.get("/api2/json/nodes/n1/qemu/999/config") as answer:
        assert (answer.status, answer.reason) == (
            500,
            "Configuration file 'nodes/n1/qemu-server/999.conf' does not exist",
        )
    async with client.head("/api2/json/version") as answer:
        assert (answer.status, answer.reason) == (501, "method 'HEAD' not available")
    async with client.get("/other") as answer:
        assert answer.status == 404


async def test_form_and_json_bodies(client: aiohttp.ClientSession) -> None:
    async with client.post("/api2/json/pools", data={"poolid": "a"}) as answer:
        assert answer.status == 200
    async with client.post("/api2/json/pools", json={"poolid": "b", "comment": "x"}) as answer:
        assert answer.status == 200
    async with client.post("/api2/json/pools", data="{", headers=JSON) as answer:
        assert answer.status == 400
    async with client.get("/api2/extjs/pools") as answer:
        body = await answer.json()
        assert (body["success"], len(body["data"])) == (1, 2)
    async with client.post("/api2/json/pools", data={"comment": "x" * 600000}) as answer:
        assert (answer.status, answer.reason) == (501, "for data too large")


JSON = {"Content-Type": "application/json"}


async def test_upload(client: aiohttp.ClientSession, simulator: Simulator) -> None:
    form = aiohttp.FormData()
    form.add_field("content", "iso")
    form.add_field("filename", b"0123456789" * 9000, filename="a.iso")
    async with client.post("/api2/json/nodes/n1/storage/local/upload", data=form) as answer:
        assert answer.status == 200
        upid = (await answer.json())["data"]
    await simulator.engine.runtimes["r"].workers.wait(upid)
    volume = simulator.regions["r"].storages["local"].volumes_on("n1")["iso/a.iso"]
    assert volume.data == b"0123456789" * 9000


async def test_fault_cut_connection(client: aiohttp.ClientSession, simulator: Simulator) -> None:
    fault = {"kind": "cut-after", "path": "/pools", "times": 1}
    async with client.post("/sim/r/faults", json=fault) as answer:
        assert (await answer.json()) == {"id": 1}
    with pytest.raises(aiohttp.ClientError):
        async with client.post("/api2/json/pools", data={"poolid": "p"}):
            pass
    assert "p" in simulator.regions["r"].pools


async def test_every_node_has_a_port(simulator: Simulator) -> None:
    async with aiohttp.ClientSession(simulator.urls["r", "n2"], headers=AUTH) as second:
        async with second.get("/api2/json/cluster/status") as answer:
            rows = (await answer.json())["data"]
        assert [row["name"] for row in rows if row.get("local")] == ["n2"]
        async with second.post("/sim/r/do/host-down", json={"node": "n2"}) as answer:
            assert answer.status == 200
        async with second.get("/api2/json/version") as answer:
            assert (answer.status, answer.reason) == (595, "Connection refused")


async def test_errors_of_the_control_api(client: aiohttp.ClientSession) -> None:
    async with client.post("/sim/r/do/host-down", json={"node": "none"}) as answer:
        assert (answer.status, await answer.json()) == (
            404,
            {"error": "node 'none' does not exist"},
        )
    async with client.post("/sim/r/faults", json={"kind": "flood"}) as answer:
        assert answer.status == 400


async def test_state_is_saved_on_request(
    client: aiohttp.ClientSession, simulator: Simulator
) -> None:
    async with client.post("/api2/json/pools", data={"poolid": "kept"}) as answer:
        assert answer.status == 200
    async with client.post("/sim/save") as answer:
        assert answer.status == 200
    assert simulator.state is not None
    assert "kept" in state_file.load_file(simulator.state)["r"].pools
