"""Checksum lists of publishers, in their own layouts, from a server on loopback."""

import hashlib
import http.server
import threading
from collections.abc import Iterator

import pytest

from moxwell.bootstrap.cloud_images import IMAGE_URLS, find_image
from moxwell.bootstrap.published_checksums import find_checksum, published_checksum
from moxwell.cli.template_source import known_checksum, read_list
from moxwell.errors import Invalid, Missing, MoxwellError, Unreachable

A, B = "a" * 64, "b" * 64
LONG = hashlib.sha512(b"image").hexdigest()
UBUNTU = f"{A} *noble-server-cloudimg-amd64-lxd.tar.xz\n{B} *noble-server-cloudimg-amd64.img\n"
DEBIAN = f"{LONG}  debian-12-genericcloud-amd64.qcow2\n{'c' * 128}  debian-12-generic.json\n"
FLATCAR = f"""# MD5 HASH
{"d" * 32}  flatcar_production_proxmoxve_image.img
# SHA1 HASH
{"e" * 40}  flatcar_production_proxmoxve_image.img
# SHA512 HASH
{LONG}  flatcar_production_proxmoxve_image.img
"""
FILES = {
    "/noble/current/SHA256SUMS": UBUNTU,
    "/images/cloud/bookworm/latest/SHA512SUMS": DEBIAN,
    "/amd64-usr/current/flatcar_production_proxmoxve_image.img.DIGESTS": FLATCAR,
}


class Publisher(http.server.BaseHTTPRequestHandler):
    """Serves the lists as the publishers do."""

    def do_GET(self) -> None:
        text = FILES.get(self.path)
        status = 503 if "jammy" in self.path else 200 if text else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, format: str, *args: object) -> None:
        """No output."""


@pytest.fixture(scope="module")
def mirror() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("ubuntu-24.04", ("sha256", B)),
        ("debian-12", ("sha512", LONG)),
        ("flatcar", ("sha512", LONG)),
    ],
)
def test_the_list_of_a_known_image(mirror: str, image: str, expected: tuple[str, str]) -> None:
    assert image in IMAGE_URLS
    assert known_checksum(find_image(image, mirror).url, "published") == expected


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("/other/disk.img", Missing, "no checksum list"),
        ("/noble/current/disk.img", Invalid, "does not name disk.img"),
        ("/jammy/current/disk.img", Unreachable, "cannot be read: HTTP status 503"),
    ],
)
def test_no_checksum_is_a_sentence(
    mirror: str, url: str, error: type[MoxwellError], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        published_checksum(mirror + url, read_list)
    assert "--checksum sha256:" in str(raised.value)


def test_a_server_that_does_not_answer_is_a_sentence() -> None:
    with pytest.raises(Unreachable, match="cannot be read"):
        published_checksum("http://127.0.0.1:9/a.img", read_list)


def test_a_given_checksum_is_not_looked_up() -> None:
    assert known_checksum("http://127.0.0.1:9/a.img", f"sha256:{A}") == ("sha256", A)


@pytest.mark.parametrize("text", ["", "a.img", f"{A} b.img", f"{A[:10]}  a.img", "\x00\xff"])
def test_lines_of_other_files_are_ignored(text: str) -> None:
    assert find_checksum(text, "a.img") == ""
