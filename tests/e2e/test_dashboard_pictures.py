"""
Pictures of every page in light, dark and phone: normal, in a rollout, with a lost region, after a
restart. With ``MOXWELL_PICTURES`` set to a folder they are made there, to be looked at; those of
the documentation are in the folder ``docs`` below it.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.dashboard_browser import create_database, lose, open_browser, restore
from support.lab_instance import Instance, instance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.skipif("MOXWELL_PICTURES" not in os.environ, reason="only on request"),
]
LONG = 180_000
PAGES = ("", "clusters", "cluster/tenant-demo/atlas", "machines", "pools", "volumes", "moves")
BUSY = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {name: ci, namespace: tenant-demo}
spec:
  nodeGroups:
    - {name: runner, replicas: 3, instanceType: u1.xlarge, regions: [amsterdam]}
    - {name: huge, replicas: 2, resources: {cpu: 16, memory: 200Gi}}
"""


@dataclass(frozen=True)
class Look:
    """A theme and the size of a window."""

    name: str
    width: int
    height: int
    dark: bool = False


LOOKS = (Look("light", 1440, 1000), Look("dark", 1440, 1000, dark=True), Look("phone", 390, 844))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("pictures")
    with instance(folder, "pictures") as running:
        (folder / "ci.yaml").write_text(BUSY)
        running.run("cluster", "create", "atlas", "--nodes", "6", "--size", "u1.large")
        running.run("cluster", "create", "borealis", "--nodes", "4", "--size", "u1.xlarge")
        running.run("apply", "-f", str(folder / "ci.yaml"))
        running.deploy("atlas", "shop", 40)
        asyncio.run(create_database(running.run("cluster", "kubeconfig", "atlas").stdout))
        yield running


@pytest.fixture(scope="module")
def browser(lab: Instance) -> Iterator[Browser]:
    with open_browser() as running:
        yield running


class Camera:
    """Pages that are signed in, one for each look."""

    def __init__(self, lab: Instance, browser: Browser) -> None:
        self.folder = Path(os.environ["MOXWELL_PICTURES"])
        (self.folder / "docs").mkdir(parents=True, exist_ok=True)
        self.base = lab.facts()["dashboard"]
        self.pages = {look: self._open(lab, browser, look) for look in LOOKS}

    def _open(self, lab: Instance, browser: Browser, look: Look) -> Page:
        context = browser.new_context(
            viewport={"width": look.width, "height": look.height},
            color_scheme="dark" if look.dark else "light",
            device_scale_factor=2,
        )
        context.set_default_timeout(LONG)
        page = context.new_page()
        page.goto(lab.link())
        expect(page.locator(".host").first).to_be_visible(timeout=LONG)
        return page

    @property
    def desktop(self) -> Page:
        return self.pages[LOOKS[0]]

    def show(self, page: Page, path: str) -> None:
        page.goto(f"{self.base}/{path}")
        expect(page.locator(".top .live")).to_contain_text("live", timeout=LONG)
        page.wait_for_timeout(1200)

    def take(self, page: Page, look: Look, name: str) -> None:
        """A picture of all that can be scrolled."""
        high = page.evaluate(
            "Math.max(...[...document.querySelectorAll('.scroll')].map((e) => e.scrollHeight))"
        )
        page.set_viewport_size({"width": look.width, "height": max(look.height, high + 240)})
        page.wait_for_timeout(400)
        page.screenshot(path=self.folder / f"{name}-{look.name}.png")
        page.set_viewport_size({"width": look.width, "height": look.height})

    def take_all(self, situation: str, *more: str) -> None:
        """Every page in every look."""
        for look, page in self.pages.items():
            for path in (*PAGES, *more):
                self.show(page, path)
                kind = path.partition("/")[0] or "estate"
                self.take(page, look, f"{situation}-{kind}")

    def document(self, name: str, path: str, look: Look = LOOKS[0]) -> None:
        page = self.pages[look]
        self.show(page, path)
        page.screenshot(path=self.folder / "docs" / f"{name}.png")


@pytest.fixture(scope="module")
def camera(lab: Instance, browser: Browser) -> Camera:
    return Camera(lab, browser)


def machine_path(camera: Camera, state: str) -> str:
    """The path of the first machine in a state."""
    answer = camera.desktop.request.get(f"{camera.base}/api/state")
    records: dict[str, dict[str, Any]] = answer.json()["records"]
    every = sorted(key for key in records if key.startswith("machine/"))
    return next((key for key in every if records[key]["state"] == state), every[0])


def test_pictures(camera: Camera, lab: Instance) -> None:
    """One test, because each situation follows from the one before."""
    picture_a_busy_lab(camera)
    picture_a_rollout(camera, lab)
    picture_a_lost_region(camera, lab)
    picture_a_restart(camera, lab)
    picture_signing_in(camera)


def picture_a_busy_lab(camera: Camera) -> None:
    expect(camera.desktop.get_by_text("Waiting for a host").first).to_be_visible(timeout=LONG)
    expect(camera.desktop.locator(".feed h3").first).to_contain_text("In progress, 0", timeout=LONG)
    camera.take_all("normal", machine_path(camera, "ready"))
    camera.document("volumes", "volumes")
    camera.document("machine", machine_path(camera, "ready"))


def picture_a_rollout(camera: Camera, lab: Instance) -> None:
    with ThreadPoolExecutor(1) as aside:  # the browser's loop runs in this thread
        aside.submit(
            lab.run, "cluster", "upgrade", "atlas", "1.35.0", "-n", "tenant-demo", "--no-wait"
        ).result()
    camera.show(camera.desktop, "")
    expect(camera.desktop.locator(".problem.moving")).to_be_visible(timeout=LONG)
    camera.document("overview-light", "")
    camera.document("overview-dark", "", LOOKS[1])
    camera.document("phone", "", LOOKS[2])
    camera.document("cluster", "cluster/tenant-demo/atlas")
    camera.take_all("rollout", machine_path(camera, "moving"))


def picture_a_lost_region(camera: Camera, lab: Instance) -> None:
    lose(lab, "frankfurt")
    try:
        camera.show(camera.desktop, "")
        expect(camera.desktop.locator(".region.stale")).to_be_visible(timeout=LONG)
        camera.document("lost-region", "")
        camera.take_all("lost", machine_path(camera, "unknown"))
    finally:
        restore(lab, "frankfurt")


def picture_a_restart(camera: Camera, lab: Instance) -> None:
    camera.show(camera.desktop, "")
    lab.kill()
    expect(camera.desktop.locator(".banner")).to_be_visible(timeout=LONG)
    for look, page in camera.pages.items():
        expect(page.locator(".banner")).to_be_visible(timeout=LONG)
        camera.take(page, look, "stopped-estate")
    lab.run("up", "--no-demo")
    camera.take_all("restarted", machine_path(camera, "ready"))


def picture_signing_in(camera: Camera) -> None:
    for look, page in camera.pages.items():
        page.context.clear_cookies()
        page.goto(camera.base)
        expect(page.locator("h1")).to_have_text("You are not signed in.")
        page.screenshot(path=camera.folder / f"signin-{look.name}.png")
