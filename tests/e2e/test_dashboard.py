"""
The dashboard in a real browser, on a real lab: it draws, lives, survives, obeys the keyboard.

With ``MOXWELL_PICTURES`` set to a folder the screenshots of the documentation are made there.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from envtest import browser as browsers
from envtest.plugin import need_or_skip
from moxwell.api.core.storage import PersistentVolumeClaim
from moxwell.clock import SystemClock
from moxwell.embedded.controllermanager.resources import DEPLOYMENTS
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from support.lab_instance import Instance, instance

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard")]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONG = 120_000
OVERLAPS = """() => [...document.querySelectorAll('.gantt .line')].filter((line) => {
    const [text, took] = ['.track span', '.took'].map((x) => line.querySelector(x));
    return text.getBoundingClientRect().right > took.getBoundingClientRect().left;
}).length"""  # of the words of a machine's timeline with the times beside them
expect.set_options(timeout=LONG)  # what is said comes; how soon is the machine's affair


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance(tmp_path_factory.mktemp("dash"), "dash") as running:
        running.deploy("demo", "web", 24)
        asyncio.run(_store(running.run("cluster", "kubeconfig", "demo").stdout))
        yield running


async def _store(config: str) -> None:
    """A database with a volume, in the tenant."""
    access = kubeconfig.parse(config).access(SystemClock(), {})
    meta = {"name": "data", "namespace": "default"}
    size = {"requests": {"storage": "20Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": size}
    pod = {
        "containers": [
            {"name": "c", "image": "db", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
        ],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    labels = {"app": "db"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    async with KubeTransport(access) as wire:
        kube = Kube(wire)
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": claim,
        }
        await kube.create(body, PersistentVolumeClaim.resource)
        meta = {"name": "db", "namespace": "default"}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        await kube.create(body, DEPLOYMENTS)


@pytest.fixture(scope="module")
def browser(lab: Instance) -> Iterator[Browser]:
    """Begun after the lab, which wants a loop of its own: the browser's runs in this thread."""
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
    context.set_default_timeout(LONG)
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
    picture(page, "machine")
    page.keyboard.press("u")
    expect(page.locator("h1")).to_have_text("demo")


def test_volumes_of_tenants_are_shown(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/volumes")
    row = page.locator("tbody tr", has_text="default/data")
    expect(row).to_contain_text("Attached to demo-md0", timeout=LONG)
    expect(row).to_contain_text("20 GiB")
    picture(page, "volumes")
    open_at(page, lab, "/cluster/tenant-demo/demo")
    expect(page.locator(".facts")).to_contain_text("1 attached")
    expect(page.locator(".facts")).to_contain_text("allocated")


def test_every_page_gives_its_commands(page: Page, lab: Instance) -> None:
    open_at(page, lab, "/cluster/tenant-demo/demo")
    page.get_by_role("button", name="Plan a change").click()
    expect(page.locator(".sheet code").first).to_contain_text("moxwell cluster scale demo md0")
    said = page.locator(".sheet code").first.inner_text().removeprefix("$ moxwell ").split()
    report = lab.run(*said).stdout
    assert "will be updated" in report
    assert "+ create" in report
    picture(page, "commands")
    page.keyboard.press("Escape")
    expect(page.locator(".sheet")).to_have_count(0)
    said = page.locator(".read code").inner_text().split()
    assert said == ["moxwell", "explain", "cluster", "demo", "-n", "tenant-demo"]
    assert "cluster demo" in lab.run(*said[1:]).stdout


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


BUSY = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {name: ci, namespace: tenant-demo}
spec:
  nodeGroups:
    - {name: runner, replicas: 3, instanceType: u1.xlarge, regions: [amsterdam]}
    - {name: huge, replicas: 1, resources: {cpu: 16, memory: 200Gi}}
"""


@pytest.mark.skipif("MOXWELL_PICTURES" not in os.environ, reason="only for the documentation")
def test_pictures_of_a_busy_lab(page: Page, lab: Instance, tmp_path: Path) -> None:
    file = tmp_path / "ci.yaml"
    file.write_text(BUSY)
    lab.run("cluster", "create", "atlas", "--nodes", "6", "--size", "u1.large")
    lab.run("cluster", "create", "borealis", "--nodes", "4", "--size", "u1.xlarge")
    lab.run("apply", "-f", str(file))
    with ThreadPoolExecutor(1) as aside:  # the browser's loop runs in this thread
        aside.submit(lab.deploy, "atlas", "shop", 40).result()
    expect(page.get_by_text("Waiting for a host").first).to_be_visible(timeout=LONG)
    expect(page.locator(".feed h3").first).to_contain_text("In progress, 1", timeout=LONG)
    lab.run("cluster", "scale", "atlas", "md0", "8", "--no-wait")
    expect(page.locator(".row .what", has_text="Booting").first).to_be_visible(timeout=LONG)
    page.set_viewport_size({"width": 1440, "height": 1070})
    picture(page, "overview-light")
    page.keyboard.press("t")
    picture(page, "overview-dark")
    page.keyboard.press("t")
    page.set_viewport_size({"width": 1440, "height": 900})
    open_at(page, lab, "/cluster/tenant-demo/atlas")
    expect(page.locator("h1")).to_have_text("atlas")
    picture(page, "cluster")


def test_a_page_survives_a_killed_daemon_and_durations_too(page: Page, lab: Instance) -> None:
    expect(page.locator(".host")).to_have_count(7, timeout=LONG)
    lab.kill()
    try:
        expect(page.locator(".top .live")).to_contain_text("as of", timeout=LONG)
        expect(page.locator(".host")).to_have_count(7)
    finally:
        lab.run("up")  # whatever failed: the other tests share the instance
    page.goto(lab.link())
    expect(page.locator(".top .live")).to_contain_text("live", timeout=LONG)
    expect(page.locator(".cells .tile:not(.foreign)").first).to_be_visible(timeout=LONG)
    typical = json.loads((lab.state.folder / "typical.json").read_text())
    assert {"Boot", "Clone"} <= {stage for stages in typical.values() for stage in stages}


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
        picture(page, "empty")
        assert json.loads(lab.run("get", "machines", "-o", "json").stdout)["items"] == []
