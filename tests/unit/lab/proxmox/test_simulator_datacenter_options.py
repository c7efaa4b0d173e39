"""The options of the datacenter: what is read after a write, and which tags they allow."""

from typing import Any

import pytest

from support.simulator_session import SimulatorSession, run_session

OPTIONS = "/cluster/options"
READ: list[tuple[str, str, Any]] = [
    ("description", "two\nlines", "two\nlines\n"),
    ("migration", "insecure,network=192.0.2.0/24",
     {"type": "insecure", "network": "192.0.2.0/24"}),
    ("bwlimit", "clone=100,default=5", "clone=100,default=5"),
    ("tag-style", "case-sensitive=yes,ordering=config",
     {"case-sensitive": 1, "ordering": "config"}),
    ("user-tag-access", "user-allow=list,user-allow-list=a;b",
     {"user-allow": "list", "user-allow-list": ["a", "b"]}),
    ("registered-tags", "x;y", ["x", "y"]),
    ("crs", "ha=static,ha-rebalance-on-start=0", {"ha": "static", "ha-rebalance-on-start": 0}),
    ("console", "applet", "html5"),
]  # fmt: skip


@pytest.mark.parametrize("case", READ, ids=[case[0] for case in READ])
def test_an_option_is_read_parsed(case: tuple[str, str, Any]) -> None:
    async def body(sim: SimulatorSession) -> None:
        name, text, expected = case
        assert (await sim.put(OPTIONS, **{name: text})).status == 200
        assert (await sim.get(OPTIONS))[name] == expected
        assert (await sim.put(OPTIONS, delete=name)).status == 200
        assert (await sim.get(OPTIONS)).get(name, "") == ""

    run_session(body)


def test_the_insecure_migration_of_earlier_releases_is_stored_as_its_type() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.put(OPTIONS, migration_unsecure="1")
        found = await sim.get(OPTIONS)
        assert found["migration"] == {"type": "insecure"}
        assert "migration_unsecure" not in found

    run_session(body)


def test_a_range_of_vmids_that_is_refused_changes_nothing() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.put(OPTIONS, **{"next-id": "lower=200"})
        answer = await sim.put(OPTIONS, keyboard="de", **{"next-id": "lower=9,upper=5"})
        assert answer.message == "lower (9) <= upper (5) boundary rule broken"
        found = await sim.get(OPTIONS)
        assert found["next-id"] == {"lower": "200"}
        assert "keyboard" not in found

    run_session(body)


@pytest.mark.parametrize(
    ("style", "stored"),
    [("", "a;b"), ("case-sensitive=on", "A;b"), ("ordering=config", "b;a")],
)
def test_tags_are_stored_in_the_style_of_the_datacenter(style: str, stored: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        if style:
            await sim.put(OPTIONS, **{"tag-style": style})
        await sim.vm(100)
        await sim.put("/nodes/n1/qemu/100/config", tags="b;A")
        assert (await sim.config())["tags"] == stored

    run_session(body)


TAGS: list[tuple[str, set[str], set[str]]] = [  # access, tags that may be set, that are offered
    ("", {"any", "listed", "seen"}, {"seen"}),
    ("user-allow=none", set(), set()),
    ("user-allow=list,user-allow-list=listed;reserved", {"listed"}, {"listed"}),
    ("user-allow=existing", {"seen"}, {"seen"}),
]


@pytest.mark.parametrize("case", TAGS, ids=[case[0] or "free" for case in TAGS])
def test_which_tags_a_user_may_set(case: tuple[str, set[str], set[str]]) -> None:
    async def body(sim: SimulatorSession) -> None:
        access, allowed, offered = case
        await sim.vm(100, tags="reserved;seen")
        await sim.vm(101, tags="hidden")
        await sim.put(OPTIONS, **{"registered-tags": "reserved"})
        if access:
            await sim.put(OPTIONS, **{"user-tag-access": access})
        await sim.post("/access/users", userid="joe@pve")
        made = await sim.post("/access/users/joe@pve/token/tk", privsep="0")
        await sim.put("/access/acl", path="/vms/100", users="joe@pve", roles="PVEVMAdmin")
        token = f"joe@pve!tk={made.data['value']}"
        found = await sim.request("GET", OPTIONS, token=token)
        assert set(found.data["allowed-tags"]) == offered
        for tag in ("reserved", "seen", "listed", "any"):  # added, or removed if it is there
            tags = sorted({"reserved", "seen"} ^ {tag})
            form = {"tags": ";".join(tags)}
            answer = await sim.request("PUT", "/nodes/n1/qemu/100/config", form, token=token)
            assert (answer.status == 200) is (tag in allowed), answer
            await sim.put("/nodes/n1/qemu/100/config", tags="reserved;seen")
        for_root = (await sim.get(OPTIONS))["allowed-tags"]
        assert set(for_root) >= {"reserved", "seen", "hidden"}

    run_session(body)
