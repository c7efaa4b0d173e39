"""
The dashboard in a real browser, on a real lab: it draws, lives, survives, obeys the keyboard.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from support.dashboard_browser import create_database, lose, open_browser, restore
from support.lab_instance import Instance, instance

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard")]
LONG = 120_000
OVERLAPS = """() => [...document.querySelectorAll('.gantt .line')].filter((line) => {
    const [text, took] = ['.track span', '.took'].map((x) => line.querySelector(x));
    return text.getBoundingClientRect().right > took.getBoundingClientRect().left;
}).length"""  # of the words of a machine's timeline with the times beside them
expect.set_options(timeout=LONG)  # texts appear; how soon depends on the machine


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance(tmp_path_factory.mktemp("dash"), "dash") as running:
        running.deploy("demo", "web", 24)
        asyncio.run(create_database(running.run("cluster", "kubeconfig", "demo").stdout))
        yield running


@pytest.fixture(scope="module")
def browser(lab: Instance) -> Iterator[Browser]:
    """Begun after the lab, which wants a loop of its own: the browser's runs in this thread."""
    with open_browser() as running:
        yield running


@pytest.fixture
def page(lab: Instance, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, device_scale_factor=2)
    context.set_default_timeout(LONG)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(lab.link())
    expect(opened.locator(".host").first).to_be_visible(timeout=LONG)
    yield opened
    context.close()
    assert problems == []


def open_at(page: Page, lab: Instance, path: str) -> None:
    page.goto(lab.facts()["dashboard"] + path)


def test_the_estate_shows_every_host_and_guest(page: Page, lab: Instance) -> None:
    machines = json.loads(lab.run("get", "machines", "-A", "-o", "json").stdout)["items"]
    expect(page.locator(".host")).to_have_count(7)
    expect(page.locator(".cells .tile:not(.foreign)")).to_have_count(len(machines), timeout=LONG)
    expect(page.locator(".cells .tile.foreign")).to_have_count(11)
    expect(page.locator(".region h2")).to_have_text(["amsterdam", "frankfurt"])


def test_a_link_works_once(lab: Instance, browser: Browser) -> None:
    link = lab.link()
    first, second = browser.new_context().new_page(), browser.new_context().new_page()
    first.goto(link)
    expect(first.locator(".host").first).to_be_visible(timeout=LONG)
    second.goto(link)
    expect(second.locator("h1")).to_have_text("This link has been used.")


def test_nobody_sees_anything_without_a_link(lab: Instance, browser: Browser) -> None:
    page = browser.new_context().new_page()
    answer = page.request.get(lab.facts()["dashboard"] + "/api/state")
    assert answer.status == 401


def machines(lab: Instance) -> set[str]:
    items = json.loads(lab.run("get", "machines", "-A", "-o", "json").stdout)["items"]
    return {m["metadata"]["name"] for m in items}


def test_a_rollout_is_seen_while_it_runs(page: Page, lab: Instance) -> None:
    """What passes quickly may be over before the command ends; what was done stays to be seen."""
    before = machines(lab)
    lab.run("cluster", "scale", "demo", "md0", "5", "--no-wait")
    expect(page.locator(".cells .tile:not(.foreign)")).to_have_count(5, timeout=LONG)
    made = machines(lab) - before
    for name in made:
        rows = page.locator(".feed .row.done", has_text=name.rpartition("-")[2])
        expect(rows.filter(has_text="Cloned from")).to_have_count(1, timeout=LONG)
        expect(rows.filter(has_text="Joined as node")).to_have_count(1, timeout=LONG)
    expect(page.locator(".feed h3").first).to_contain_text("In progress, 0", timeout=LONG)
    page.set_viewport_size({"width": 390, "height": 844})
    open_at(page, lab, f"/machine/tenant-demo/{min(made)}")
    expect(page.locator(".gantt .took").first).to_be_visible(timeout=LONG)
    assert page.evaluate(OVERLAPS) == 0


def test_a_machine_says_what_it_did_and_why_it_is_there(page: Page, lab: Instance) -> None:
    page.locator(".cells .tile:not(.foreign)").first.click()
    expect(page.locator("h1")).to_contain_text("demo-md0-")
    expect(page.get_by_text("Current host").first).to_be_visible(timeout=LONG)
    expect(page.locator(".conds").last).to_contain_text("Ready")
    page.keyboard.press("u")
    expect(page.locator("h1")).to_have_text("demo")


def test_volumes_of_tenants_are_shown(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/volumes")
    row = page.locator("tbody tr", has_text="default/data")
    expect(row).to_contain_text("Attached to demo-md0", timeout=LONG)
    expect(row).to_contain_text("20 GiB")
    open_at(page, lab, "/cluster/tenant-demo/demo")
    expect(page.locator(".facts")).to_contain_text("1 attached")
    expect(page.locator(".facts")).to_contain_text("allocated")


def type_in(lab: Instance, command: str) -> str:
    """What a command prints that was copied from a page."""
    env = {**lab.env, "MOXWELL_NAME": "another"}
    done = subprocess.run(
        command.split(), env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_page_gives_its_commands(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/cluster/tenant-demo/demo")
    page.get_by_role("button", name="Plan a change").click()
    expect(page.locator(".sheet code").first).to_contain_text("moxwell cluster scale demo md0")
    said = page.locator(".sheet code").first.inner_text().removeprefix("$ ")
    assert said.endswith(" --name dash")  # it can be copied: the path and the instance are in it
    report = type_in(lab, said)
    assert "will be updated" in report
    assert "+ create" in report
    upgrade = page.locator(".sheet code").filter(has_text="cluster upgrade")
    assert "because of version" in type_in(lab, upgrade.inner_text().removeprefix("$ "))
    page.keyboard.press("Escape")
    expect(page.locator(".sheet")).to_have_count(0)
    said = page.locator(".read code").inner_text()
    assert said.endswith("/moxwell explain cluster demo -n tenant-demo --name dash")
    assert "cluster demo" in type_in(lab, said)


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.locator("h1")).to_have_text("Clusters")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("demo")
    page.keyboard.press("/")
    page.keyboard.type("fra4")
    expect(page.locator(".sheet li").first).to_contain_text("frankfurt/fra4")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator(".sheet")).to_contain_text("walk guests")


def test_arrows_walk_guests_and_the_readout_speaks(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/")
    expect(page.locator(".cells .tile").first).to_be_visible(timeout=LONG)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#say")).to_contain_text("VMID")


def test_the_past_can_be_looked_at(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/")
    expect(page.locator(".host").first).to_be_visible(timeout=LONG)
    page.keyboard.press("[")
    expect(page.locator(".top .live")).to_contain_text("as of")
    page.keyboard.press("l")
    expect(page.locator(".top .live")).to_contain_text("live")


def test_a_page_survives_a_killed_daemon(page: Page, lab: Instance) -> None:
    expect(page.locator(".host")).to_have_count(7, timeout=LONG)
    lab.kill()
    try:
        expect(page.locator(".top .live")).to_contain_text("as of", timeout=LONG)
        expect(page.locator(".host")).to_have_count(7)
    finally:
        lab.run("up")  # whatever failed: the other tests share the instance
    expect(page.locator(".top .live")).to_contain_text("live", timeout=LONG)  # by itself
    page.reload()  # the session outlives the daemon
    expect(page.locator(".cells .tile:not(.foreign)").first).to_be_visible(timeout=LONG)


def test_a_lost_region_and_its_return(page: Page, lab: Instance) -> None:
    lose(lab, "frankfurt")
    try:
        expect(page.locator(".region.stale h2")).to_have_text("frankfurt", timeout=LONG)
        expect(page.locator(".problem")).to_have_count(1)
        expect(page.locator(".problem")).to_contain_text("Region frankfurt does not answer")
        said = page.locator(".map").inner_text()
        assert "? of" not in said
        assert re.search(r"\bof 0\b(?!\d*:)", said) is None  # not the hour of "as of 09:30"
    finally:
        restore(lab, "frankfurt")
    expect(page.locator(".region.stale")).to_have_count(0, timeout=LONG)
    expect(page.locator(".problem")).to_have_count(0, timeout=LONG)
    done = page.locator(".feed .row.done", has_text="frankfurt")
    expect(done.filter(has_text="Answers again").first).to_be_visible(timeout=LONG)


def test_numa_nodes_come_from_the_host_agent_only(page: Page, lab: Instance) -> None:
    expect(page.locator(".host").first).to_be_visible(timeout=LONG)
    expect(page.locator(".numa")).to_have_count(0)
    expect(page.locator(".host .block")).to_have_count(7)  # also of two sockets


def test_a_phone_shows_problems_and_hosts(lab: Instance, browser: Browser) -> None:
    page = browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=2
    ).new_page()
    page.goto(lab.link())
    expect(page.locator(".nav")).to_be_visible(timeout=LONG)
    expect(page.locator(".host").first).to_be_visible(timeout=LONG)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


def test_an_empty_lab_says_what_to_do_first(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    with instance(tmp_path_factory.mktemp("empty"), "empty", "--no-demo") as lab:
        page = browser.new_context(
            viewport={"width": 1440, "height": 900}, device_scale_factor=2
        ).new_page()
        page.goto(lab.link())
        expect(page.locator("h1")).to_have_text("Your lab is up. It is empty.", timeout=LONG)
        expect(page.locator(".cells .tile.foreign")).to_have_count(11, timeout=LONG)
        page.get_by_role("button", name="See the plan first").click()
        expect(page.locator(".tile.planned")).to_have_count(3, timeout=LONG)
        assert json.loads(lab.run("get", "machines", "-o", "json").stdout)["items"] == []
