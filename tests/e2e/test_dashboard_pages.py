"""The pages of the dashboard in a real browser, with records that the test makes up."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import Browser, BrowserContext, Page, expect

from moxwell.embedded.ports import free_port
from moxwell.web.change_log import ChangeLog
from moxwell.web.http import Dashboard
from moxwell.web.model import (
    ClusterView,
    InfrastructureOverview,
    NodeGroupView,
    NodePoolView,
    NumaNodeView,
    PoolNodeView,
    RegionView,
    StorageView,
    VolumeView,
)
from moxwell.web.sessions import Sessions
from moxwell.web.views import Views
from support.dashboard_browser import open_browser
from support.dashboard_overview import machine, overview, waiting

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard pages")]
LONG = 120_000  # the option below is one for all modules of a process
PAGES = ("Estate", "Clusters", "Machines", "Pools", "Volumes", "Moves")
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1440, "height": 900}
expect.set_options(timeout=LONG)


class Served:
    """A dashboard in a thread; its records are what the test puts."""

    def __init__(self, folder: Path) -> None:
        self._file, self._port = folder / "sessions.json", free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def start(self) -> None:
        self._call(self._start())

    async def _start(self) -> None:
        self.sessions = Sessions("key", file=self._file)
        self._log, self._views = ChangeLog(datetime.now(UTC)), Views()
        command = "/opt/moxwell status --name shop"
        board = Dashboard(self._log, self.sessions, hosts=["127.0.0.1"], command=command)
        self._runner = web.AppRunner(board.routes(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    def stop(self) -> None:
        self._call(self._runner.cleanup())

    def put(self, seen: InfrastructureOverview, age: timedelta = timedelta()) -> None:
        async def put() -> None:
            now = datetime.now(UTC) - age
            made = replace(seen, now=now, program="/opt/moxwell", instance="shop")
            self._log.put(self._views.records(made), at=now)

        self._call(put())

    def link(self) -> str:
        return f"{self.base}/enter/{self.sessions.new_link()}"

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    made.set_default_timeout(LONG)
    yield made
    made.close()


@pytest.fixture
def page(served: Served, context: BrowserContext) -> Iterator[Page]:
    served.put(FULL)
    opened, problems = context.new_page(), list[str]()
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(served.link())
    expect(opened.locator(".host").first).to_be_visible()
    yield opened
    assert problems == []


THREE = (machine(1), machine(2, "r2"), machine(3, "r2"))
STORES = (
    StorageView(region="r1", name="ceph", hosts=3, active_hosts=3, type="rbd", total_mib=9 << 20),
    StorageView(region="r1", name="lvm", host="r1-h1", type="lvmthin", total_mib=1 << 20),
    StorageView(region="r1", name="iso", host="r1-h1", type="dir", active_hosts=0),
    StorageView(region="r2", name="nfs", hosts=2, active_hosts=1, type="nfs", total_mib=1 << 20),
)
VOLUMES = (
    VolumeView(
        name="pvc-0123456789abcdef", cluster="t/demo", claim="shop/data", storage="r1/ceph",
        size_mib=20480, guest="demo-md0-1", message="Attached to demo-md0-1",
    ),
)  # fmt: skip
POOLS = (
    NodePoolView(
        cluster="t/demo", name="default", limits="40 vCPU", used="12 vCPU, 48 GiB, 3 nodes",
        proposal="Delete demo-md0-2: Underutilized", saves=0.25,
        nodes=(
            PoolNodeView(
                name="c1", node="demo-md0-1", type="u1.xlarge", capacity="on-demand", zone="r1-h1",
                pods=7, why="Made for pods that requested 3.5 vCPU, 6 GiB",
                stays="Can't replace with a cheaper node",
            ),
            PoolNodeView(name="c2", node="demo-md0-2", type="u1.xlarge", pods=1),
            PoolNodeView(name="c4", state="creating", message="The guest boots and joins"),
        ),
    ),
    NodePoolView(cluster="t/demo", name="spare", ready=False, message="the class is not ready"),
)  # fmt: skip
FULL = overview(
    *THREE, waiting(4, "InsufficientResources", "no room"), storages=STORES, volumes=VOLUMES,
    node_pools=POOLS,
)  # fmt: skip


def go(page: Page, label: str) -> None:
    phone = page.viewport_size == PHONE
    page.locator(".nav a" if phone else ".tabs a", has_text=label).click()
    expect(page.locator("[aria-current=page]").first).to_be_attached()


def test_a_lost_region_is_one_card_and_marked_as_stale(page: Page, served: Served) -> None:
    served.put(overview(*THREE, storages=STORES, volumes=VOLUMES, lost=("r2",)))
    expect(page.locator(".region.stale")).to_have_count(1)
    expect(page.locator(".problem b").first).to_have_text("Region r2 does not answer")
    expect(page.locator(".problem")).to_have_count(1)
    expect(page.locator(".region.stale > header")).to_contain_text("as of")
    assert " of 0 " not in page.locator(".map").inner_text()
    expect(page.locator(".feed h3", has_text="Waiting or unknown, 1")).to_be_visible()
    go(page, "Clusters")
    expect(page.locator("tbody tr")).to_contain_text("1 of 3 ready, 2 unknown")
    page.locator("tbody a").click()
    expect(page.locator(".facts")).to_contain_text("1 of 3 ready, 2 unknown")
    expect(page.locator(".pill.trouble")).to_contain_text("r2 does not answer")
    assert "3 of 3" not in page.locator(".page").inner_text().replace("3 of 3 hosts", "")
    go(page, "Volumes")
    expect(page.locator(".stores.stale")).to_have_count(1)


def test_numa_nodes_are_drawn_only_with_the_host_agent(page: Page, served: Served) -> None:
    assert "socket" not in page.locator(".map").inner_text()
    expect(page.locator(".numa")).to_have_count(0)
    nodes = tuple(NumaNodeView(number=n, cpus=8, memory_mib=65536) for n in range(2))
    hosts = tuple(replace(h, numa=nodes if h.name == "r1-h1" else ()) for h in FULL.hosts)
    bound = (replace(THREE[0], numa=(1,)), *THREE[1:])
    served.put(replace(FULL, hosts=hosts, machines=bound))
    host = page.locator('[data-host="host/r1/r1-h1"]')
    expect(host.locator(".block")).to_have_count(2)
    expect(host.locator(".block").last).to_contain_text("numa 1")
    expect(host.locator(".block").last).to_contain_text("bound 16 G")
    expect(host.locator(".block").last.locator(".tile")).to_have_count(1)
    expect(page.locator(".numa")).to_have_count(2)


EDGE = "getComputedStyle(document.querySelector('.tile[data-guest=\"guest/r1/101\"]'))"


def test_a_cluster_keeps_its_colour(page: Page, served: Served) -> None:
    tile = page.locator('.tile[data-guest="guest/r1/101"]')
    look = tile.get_attribute("class")
    more = tuple(ClusterView(namespace="a", name=f"a{n}") for n in range(5))
    served.put(replace(FULL, clusters=(*more, *FULL.clusters)))
    expect(page.locator(".key li a")).to_have_count(6)
    assert tile.get_attribute("class") == look
    light = page.evaluate(f"{EDGE}.getPropertyValue('--edge')")
    page.keyboard.press("t")
    assert tile.get_attribute("class") == look
    assert page.evaluate(f"{EDGE}.getPropertyValue('--edge')") != light  # its dark variant


def test_search_ranks_exact_then_prefix_then_substring(page: Page, served: Served) -> None:
    clusters = tuple(
        ClusterView(namespace="t", name=name, groups=(NodeGroupView(name="md0", replicas=1),))
        for name in ("aweb", "web2", "a-web", "web")
    )
    served.put(replace(FULL, clusters=clusters))
    page.keyboard.press("/")
    page.keyboard.type("web")
    expect(page.locator(".sheet li b")).to_have_text(["web", "web2", "a-web", "aweb"])
    page.locator(".sheet input").fill("r1-h1")
    expect(page.locator(".sheet li b").first).to_have_text("r1/r1-h1")
    page.keyboard.press("Enter")
    expect(page.locator('[data-host="host/r1/r1-h1"]')).to_be_focused()


def test_all_storages_and_the_volumes_of_guests(page: Page) -> None:
    tile = page.locator('.tile[data-guest="guest/r1/101"]')
    expect(tile.locator(".disks")).to_have_text("1")
    assert "1 volume of 20 GiB" in str(tile.get_attribute("aria-label"))
    go(page, "Volumes")
    expect(page.locator(".stores tbody tr")).to_have_count(len(STORES))
    expect(page.locator(".stores tr", has_text="iso")).to_contain_text("inactive")
    expect(page.locator(".stores tr", has_text="nfs")).to_contain_text("active on 1 of 2 hosts")
    expect(page.locator(".stores tr", has_text="ceph")).to_contain_text("1, 20 GiB")


def test_node_pools_say_why_nodes_exist_and_what_would_be_saved(page: Page) -> None:
    go(page, "Pools")
    default = page.locator(".card", has=page.locator("h2", has_text="default"))
    expect(default).to_contain_text("demo, uses 12 vCPU, 48 GiB, 3 nodes, at most 40 vCPU")
    expect(default).to_contain_text("Would save 0.250 of its price: Delete demo-md0-2")
    first = default.locator("tr", has_text="demo-md0-1")
    expect(first).to_contain_text("Made for pods that requested 3.5 vCPU, 6 GiB")
    expect(first).to_contain_text("Can't replace with a cheaper node")
    expect(default.locator("tr", has_text="c4")).to_contain_text("The guest boots and joins")
    expect(page.locator(".card", has_text="spare")).to_contain_text(
        "Not ready: the class is not ready"
    )
    first.locator("a").click()
    expect(page.locator("h1")).to_have_text("demo-md0-1")


WIDE = """() => document.documentElement.scrollWidth > innerWidth
    || [...document.querySelectorAll('.main, .main *')].some((e) =>
        ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
        && e.scrollWidth > e.clientWidth + 1)"""
CELLS = """() => [...document.querySelectorAll('.main td, .main h1, .main h2, .main .problem b')]
    .map((e) => e.innerText.replace(/\\s+/g, ' ').trim())
    .filter((t) => t && !/^[0-9:]+$/.test(t))"""


def test_a_phone_shows_everything_that_the_desktop_shows(page: Page, served: Served) -> None:
    detail = ("/cluster/t/demo", "/machine/t/demo-md0-1")
    paths = ["/", "/clusters", "/machines", "/pools", "/volumes", "/moves", *detail]
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for label in PAGES:
        go(page, label)
    for path in paths:
        page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
        page.goto(served.base + path)
        expect(page.locator(".main h1, .main h2").first).to_be_visible()
        said = page.evaluate(CELLS)
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        expect(page.locator(".nav")).to_be_visible()
        page.wait_for_function("document.querySelector('.frame').clientWidth === 390")
        shown = " ".join(page.locator(".main").inner_text().split())
        grid = {"·", "md0", "r1", "r2"}  # of the spread, which is a list on a phone
        missing = [t for t in said if t not in shown and t not in grid and not t.endswith(" %")]
        assert missing == [], path
        assert not page.evaluate(WIDE), path


def test_a_page_without_a_session_says_how_to_sign_in(
    served: Served, context: BrowserContext
) -> None:
    served.put(FULL)
    page = context.new_page()
    page.goto(f"{served.base}/machines")
    expect(page.locator("h1")).to_have_text("You are not signed in.")
    expect(page.locator("code")).to_have_text("/opt/moxwell status --name shop")
    context.new_page().goto(served.link())  # in the same browser
    expect(page.locator("h1")).to_have_text("Machines")


def test_an_open_page_reconnects_after_a_restart(page: Page, served: Served) -> None:
    served.stop()
    expect(page.locator(".banner")).to_contain_text("Moxwell does not answer")
    expect(page.locator(".banner code")).to_have_text("/opt/moxwell up --name shop")
    expect(page.locator(".host").first).to_be_visible()  # the data stays
    served.start()
    for _ in range(3):  # the numbers of the new log are not those of the old one
        served.put(overview(machine(7)))
    expect(page.locator('.tile[data-guest="guest/r1/107"]')).to_be_visible()
    expect(page.locator('.tile[data-guest="guest/r1/101"]')).to_have_count(0)
    expect(page.locator(".banner")).to_have_count(0)
    page.reload()
    expect(page.locator('.tile[data-guest="guest/r1/107"]')).to_be_visible()


def test_data_that_nobody_looked_at_for_a_while_is_marked(page: Page, served: Served) -> None:
    served.put(overview(machine(8)), age=timedelta(minutes=10))
    expect(page.locator(".banner")).to_contain_text("has not looked")
    served.put(overview(machine(9)))
    expect(page.locator(".banner")).to_have_count(0)


def test_sign_out_ends_every_page_of_the_browser(page: Page, served: Served) -> None:
    other = page.context.new_page()
    other.goto(f"{served.base}/moves")
    expect(other.locator("h1")).to_have_text("Moves")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("You are not signed in.")
    served.put(overview(machine(9)))  # the next change ends the other stream
    expect(other.locator("h1")).to_have_text("You are not signed in.")


NAMELESS = """() => [...document.querySelectorAll('button, a, input, [tabindex="0"]')]
    .filter((e) => !(e.getAttribute('aria-label') || e.innerText?.trim() || e.title)).length"""


def test_everything_has_a_name_and_dialogs_keep_the_focus(page: Page) -> None:
    for label in PAGES:
        go(page, label)
        assert page.evaluate(NAMELESS) == 0, label
    page.locator(".top button.find").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Find")
    expect(dialog.locator("input")).to_be_focused()
    page.keyboard.type("demo")
    expect(dialog.locator("li").first).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.sheet') !== null")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator(".top button.find")).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("Tab")
    assert page.evaluate(outline) == "solid"


def test_nothing_moves_for_those_who_want_no_motion(served: Served, browser: Browser) -> None:
    served.put(FULL)
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(served.link())
    expect(page.locator(".bar i").first).to_be_attached()
    moving = """[...document.querySelectorAll('*')].filter((e) => parseFloat(
        getComputedStyle(e).transitionDuration) > 0).length"""
    assert page.evaluate(moving) == 0
    context.close()


def many(count: int, slow: int = 0) -> InfrastructureOverview:
    """Machines on 30 hosts, some of which boot."""
    machines = tuple(
        machine(n, f"r{n % 2 + 1}", host=f"r{n % 2 + 1}-h{n % 30}", node_ready=n >= slow)
        for n in range(count)
    )
    return overview(*machines, regions=(RegionView(name="r1"), RegionView(name="r2")))


CHANGED = """() => new Promise((done) => {
    let count = 0;
    const watcher = new MutationObserver((found) => { count += found.length; });
    watcher.observe(document.querySelector('.map'), { subtree: true, childList: true,
        attributes: true, characterData: true });
    const until = () => document.querySelectorAll('.cells .tile.moving').length === 2
        ? done(count) : setTimeout(until, 20);
    until();
})"""


def test_three_hundred_machines_change_only_what_differs(page: Page, served: Served) -> None:
    served.put(many(300))
    expect(page.locator(".cells .tile")).to_have_count(300)
    page.evaluate(f"() => {{ window.changed = ({CHANGED})(); }}")
    served.put(many(300, slow=2))
    assert page.evaluate("window.changed") < 100
    go(page, "Machines")
    expect(page.locator("tbody tr")).to_have_count(200)
    page.get_by_role("button", name="Show 100 more").click()
    expect(page.locator("tbody tr")).to_have_count(300)
    page.locator("#filter").fill("demo-md0-299")
    expect(page.locator("tbody tr")).to_have_count(1)
