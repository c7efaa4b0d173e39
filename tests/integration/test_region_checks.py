"""Each check of a region fails on a Proxmox that has the fault, and its advice mends it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from moxwell.errors import Unreachable
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.onboarding.region_checks import (
    CheckLevel,
    RegionCheck,
    RegionNeeds,
    check_region,
    could_make_cluster,
)
from moxwell.onboarding.region_facts import RegionFacts, read_facts
from moxwell.pve import preflight
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.errors import CredentialsRefused, PermissionDenied
from moxwell.pve.values import SecretValue
from moxwell.testing.small_region import FEATURES, SimStage

CONFIG = RegionConfig(
    region="r1",
    urls=("https://pve1:8006", "https://pve2:8006"),
    auth=TokenAuth("moxwell@pve!test", SecretValue("s")),
    fingerprint="0" * 64,
)
NEEDS = RegionNeeds(FEATURES)


async def checks(stage: SimStage, config: RegionConfig = CONFIG) -> tuple[RegionCheck, ...]:
    return check_region(await read_facts(stage.pve, config, stage.clock), NEEDS)


def problems(found: tuple[RegionCheck, ...]) -> set[tuple[str, str]]:
    return {(c.name, str(c.level)) for c in found if c.level is not CheckLevel.PASS}


def healthy(version: str = "9.2.11") -> SimStage:
    stage = SimStage(version)
    template = stage.engine.runtimes["r1"].region.guests[9000]
    template.conf["tags"] = "k8s-v1.36.3"
    return stage


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_a_region_where_machines_can_be_made_passes(version: str) -> None:
    found = await checks(healthy(version))
    assert problems(found) == set(), found
    assert could_make_cluster(found)
    assert {c.name for c in found} >= {
        "reachability", "tls", "version", "privileges", "quorum", "clock", "network", "capacity"
    }  # fmt: skip


def _restrict(stage: SimStage, *without: str) -> None:
    """Leave the token the documented role on the documented paths only."""
    region = stage.engine.runtimes["r1"].region
    needs = preflight.needs(region.major)
    paths = {need.path for need in needs}
    region.access.acl[:] = [row for row in region.access.acl if row.path in paths]
    region.access.roles["Moxwell"] = sorted({n.privilege for n in needs} - set(without))


async def restricted_checks(stage: SimStage) -> tuple[RegionCheck, ...]:
    return check_region(await read_facts(stage.pve, CONFIG, stage.clock), RegionNeeds())


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_the_documented_role_is_sufficient_for_the_checks(version: str) -> None:
    stage = healthy(version)
    _restrict(stage)
    with pytest.raises(PermissionDenied, match=r"Sys\.Audit"):
        await stage.pve.cluster.status()
    found = await restricted_checks(stage)
    assert problems(found) == set(), found
    assert "2 hosts answer" in {c.what for c in found}


async def test_a_region_that_the_token_may_not_read_names_the_privilege() -> None:
    stage = healthy()
    _restrict(stage, "Sys.Audit")
    found = await restricted_checks(stage)
    assert problems(found) == {("privileges", "fail")}
    assert "the token lacks Sys.Audit on /nodes" in {c.what for c in found}


def _no_privilege(stage: SimStage) -> None:
    stage.engine.runtimes["r1"].region.access.roles["Moxwell"].remove("VM.Clone")


def _no_bridge(stage: SimStage) -> None:
    host = stage.engine.runtimes["r1"].region.hosts["pve2"]
    del host.bridges["vmbr0"]


def _no_images(stage: SimStage) -> None:
    for storage in stage.engine.runtimes["r1"].region.storages.values():
        storage.options["content"] = "iso"


def _no_template(stage: SimStage) -> None:
    del stage.engine.runtimes["r1"].region.guests[9000]


def _no_agent(stage: SimStage) -> None:
    stage.engine.runtimes["r1"].region.guests[9000].conf["agent"] = "0"


def _no_tag(stage: SimStage) -> None:
    stage.engine.runtimes["r1"].region.guests[9000].conf["tags"] = "other"


def _wrong_controller(stage: SimStage) -> None:
    stage.engine.runtimes["r1"].region.guests[9000].conf["scsihw"] = "lsi"


def _no_host(stage: SimStage) -> None:
    stage.engine.runtimes["r1"].region.hosts["pve2"].online = False


FAULTS: list[tuple[Callable[[SimStage], None], set[tuple[str, str]]]] = [
    (_no_privilege, {("privileges", "fail")}),
    (_no_bridge, {("network", "fail")}),
    (_no_images, {("storage", "fail")}),
    (_no_template, {("templates", "fail")}),
    (_no_agent, {("templates", "warn")}),
    (_no_tag, {("templates", "warn")}),
    (_wrong_controller, {("templates", "warn")}),
]


@pytest.mark.parametrize(("fault", "expected"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
async def test_a_fault_is_found(
    fault: Callable[[SimStage], None], expected: set[tuple[str, str]]
) -> None:
    stage = healthy()
    fault(stage)
    found = await checks(stage)
    assert problems(found) == expected
    assert all(c.do for c in found if c.level is not CheckLevel.PASS)


async def test_a_silent_region_is_one_failure() -> None:
    stage = healthy()
    stage.engine.faults["r1"].add(Fault("status", status=596))
    found = await checks(stage)
    assert [c.name for c in found] == ["reachability"]
    assert not could_make_cluster(found)


PURE: list[tuple[dict[str, object], tuple[str, str]]] = [
    ({"insecure": True}, ("tls", "warn")),
    ({"urls": ("https://pve1:8006",), "hosts": {"a": True, "b": True}}, ("urls", "warn")),
    ({"user": "root@pam!x"}, ("user", "warn")),
    ({"major": 7, "version": "7.4"}, ("version", "fail")),
    ({"major": 10, "version": "10.0"}, ("version", "warn")),
    ({"quorate": False}, ("quorum", "fail")),
    ({"hosts": {"a": True, "b": False}}, ("hosts", "warn")),
    ({"skews": {"a": -7200.0}}, ("clock", "fail")),
    ({"skews": {"a": 20.0}}, ("clock", "warn")),
    ({"vmids": frozenset(range(10000, 100000))}, ("vmids", "fail")),
    ({"vmids": frozenset(range(10000, 99990))}, ("vmids", "warn")),
    ({"free": {"a": (64, 1 << 30)}}, ("capacity", "fail")),
    ({"error": Unreachable("no route")}, ("reachability", "fail")),
    ({"error": CredentialsRefused("401")}, ("login", "fail")),
    ({"error": PermissionDenied("403")}, ("privileges", "fail")),
]


@pytest.mark.parametrize(("changes", "expected"), PURE, ids=[str(p[1]) for p in PURE])
async def test_facts_that_fail(changes: dict[str, object], expected: tuple[str, str]) -> None:
    good = await read_facts(healthy().pve, CONFIG, healthy().clock)
    facts: RegionFacts = replace(good, **changes)  # type: ignore[arg-type]
    assert expected in problems(check_region(facts, NEEDS))
    assert problems(check_region(good, NEEDS)) == set()
