"""The configuration, the time zone and the services of a node."""

import pytest

from support.simulator_session import SimulatorSession, run_session

CONFIG = "/nodes/n1/config"


def test_the_configuration_of_a_node() -> None:
    async def body(sim: SimulatorSession) -> None:
        assert await sim.get(CONFIG) == {}
        await sim.put(CONFIG, description="a", wakeonlan="aa:bb:cc:dd:ee:ff")
        found = await sim.get(CONFIG)
        assert await sim.get(CONFIG, property="description") == {"description": "a\n"}
        assert await sim.get(CONFIG, property="acme") == {}
        changed = await sim.put(CONFIG, digest="0" * 40, description="b")
        assert changed.message.startswith("detected modified configuration")
        await sim.put(CONFIG, digest=found["digest"], description="b", delete="description")
        assert set(await sim.get(CONFIG)) == {"wakeonlan", "digest"}

    run_session(body)


@pytest.mark.parametrize(
    "zone, errors",
    [
        pytest.param("Europe/Vienna", {}, id="a city"),
        pytest.param("Etc/UTC", {}, id="UTC"),
        pytest.param("Foo/Bar", {"timezone": "No such timezone"}, id="no zone"),
    ],
)
def test_time_zones(zone: str, errors: dict[str, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        answer = await sim.put("/nodes/n1/time", timezone=zone)
        assert (answer.status, answer.errors) == (400 if errors else 200, errors)

    run_session(body)


@pytest.mark.parametrize(
    "service, verb, status",
    [
        pytest.param("pveproxy", "restart", "OK", id="restart"),
        pytest.param("corosync", "stop", "OK", id="stop"),
        pytest.param("pveproxy", "stop", "invalid service cmd 'pveproxy stop': refusing to stop"
                     " essential service!", id="stop what serves the API"),
    ],
)  # fmt: skip
def test_services_that_serve_the_api_do_not_stop(service: str, verb: str, status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        ended = await sim.run_task("POST", f"/nodes/n1/services/{service}/{verb}")
        assert ended.status == status

    run_session(body)
