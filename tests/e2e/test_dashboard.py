"""
The dashboard in a real browser, on a real lab: it draws, lives, survives, obeys the keyboard.

With ``MOXWELL_PICTURES`` set to a folder the screenshots of the documentation are made there.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance import Instance, instance
from playwright.sync_api import Browser, Page, expect, sync_playwright

from rig import browser as browsers
from rig.plugin import need_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard")]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONG = 120_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance(tmp_path_factory.mktemp("dash"), "dash") as running:
        running.deploy("demo", "web", 24)
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = browsers.find()
    if program is None:
        need_or_skip("chromium is not installed")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(program), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(lab: Instance, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, device_scale_factor=2)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(lab.link())
    expect(opened.locator(".host").first).to_be_visible(timeout=LONG)
    yield opened
    context.close()
    assert problems == []


def picture(page: Page, name: str) -> None:
    """A screenshot for the documentation, where somebody asked for it."""
    if folder := os.environ.get("MOXWELL_PICTURES"):
        page.wait_for_timeout(600)
        page.screenshot(path=Path(folder) / f"{name}.png")


def open_at(page: Page, lab: Instance, path: str) -> None:
    page.goto(lab.facts()["dashboard"] + path)


def test_the_estate_shows_every_host_and_guest(page: Page, lab: Instance) -> None:
    machines = json.loads(lab.run("get", "machines", "-A", "-o", "json").stdout)["items"]
    expect(page.locator(".host")).to_have_count(7)
    expect(page.locator(".cells .tile:not(.foreign)")).to_have_count(len(machines), timeout=LONG)
    assert page.locator(".cells .tile.foreign").count() == 11
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


def test_a_rollout_is_seen_while_it_runs(page: Page, lab: Instance) -> None:
    lab.run("cluster", "scale", "demo", "md0", "5", "--no-wait")
    expect(page.locator(".row .what", has_text="Cloning").first).to_be_visible(timeout=LONG)
    page.wait_for_timeout(4000 if os.environ.get("MOXWELL_PICTURES") else 0)
    picture(page, "estate-light")
    page.keyboard.press("t")
    picture(page, "estate-dark")
    page.keyboard.press("t")
    expect(page.locator(".cells .tile:not(.foreign)")).to_have_count(5, timeout=LONG)
    expect(page.locator(".feed h3").first).to_contain_text("Under way, 0", timeout=LONG)


def test_a_machine_says_what_it_did_and_why_it_is_there(page: Page, lab: Instance) -> None:
    page.locator(".cells .tile:not(.foreign)").first.click()
    expect(page.locator("h1")).to_contain_text("demo-md0-")
    expect(page.get_by_text("Is here").first).to_be_visible(timeout=LONG)
    expect(page.locator(".conds")).to_contain_text("Ready")
    picture(page, "machine")
    page.keyboard.press("u")
    expect(page.locator("h1")).to_have_text("demo")
    picture(page, "cluster")


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


def test_a_restart_of_the_server_is_survived(page: Page, lab: Instance) -> None:
    lab.kill()
    expect(page.locator(".top .live")).to_contain_text("as of", timeout=LONG)
    expect(page.locator(".host")).to_have_count(7)
    lab.run("up")
    page.goto(lab.link())
    expect(page.locator(".top .live")).to_contain_text("live", timeout=LONG)
    expect(page.locator(".cells .tile:not(.foreign)").first).to_be_visible(timeout=LONG)


def test_a_phone_shows_problems_and_hosts(lab: Instance, browser: Browser) -> None:
    page = browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=2
    ).new_page()
    page.goto(lab.link())
    expect(page.locator(".nav")).to_be_visible(timeout=LONG)
    expect(page.locator(".host").first).to_be_visible(timeout=LONG)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    picture(page, "phone")
