"""Images that a simulated kubelet cannot pull."""

import pytest

from moxwell.lab.guests.pods import image_problem, waiting_status

IMAGES = {
    "nginx": "",
    "docker.io/library/nginx:1.27": "",
    "registry.k8s.io/pause@sha256:" + "0" * 64: "",
    "localhost:5000/Team/web": "InvalidImageName",
    "Not An Image!!": "InvalidImageName",
    "": "InvalidImageName",
    "web:": "InvalidImageName",
    "registry.invalid/web:1": "ImagePullBackOff",
    "registry.example:5000/a/b": "ImagePullBackOff",
    "example/web": "",
}


@pytest.mark.parametrize(("image", "problem"), IMAGES.items(), ids=[i or "empty" for i in IMAGES])
def test_an_image_can_be_pulled_unless_it_cannot_exist(image: str, problem: str) -> None:
    assert image_problem(image) == problem


def test_the_status_names_the_container_and_the_problem() -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "x.invalid/y"}]}}
    status = waiting_status(pod, "ImagePullBackOff", "2026-03-20T12:00:00Z")
    (container,) = status["containerStatuses"]
    assert container["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert status["phase"] == "Pending"
