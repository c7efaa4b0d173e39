"""Downloads, checks of image files, metadata of appliances, and files in backups."""

import gzip
import hashlib
import re

import pytest

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.volumes import web
from moxwell.lab.proxmox.volumes.images import check_image, qcow2_bytes, virtual_size
from support.simulator_session import SimulatorSession, run_session


@pytest.mark.parametrize(
    "form, data, message",
    [
        pytest.param("raw", b"", None, id="raw is anything"),
        pytest.param("qcow2", qcow2_bytes(1 << 20), None, id="qcow2"),
        pytest.param("qcow2", bytes(64), "Image is not in qcow2 format", id="zeros as qcow2"),
        pytest.param("vmdk", bytes(64), "invalid VMDK image descriptor", id="zeros as vmdk"),
        pytest.param("ova", bytes(1024), "ova archive has no .ovf file inside", id="zeros as ova"),
        pytest.param("ova", gzip.compress(bytes(1024)), "no .ovf file inside", id="gzip as ova"),
        pytest.param("ova", b"x" * 1024, "command 'tar -t -f /x' failed: exit code 2",
                     id="no archive"),
    ],
)  # fmt: skip
def test_images_are_checked(form: str, data: bytes, message: str | None) -> None:
    if message is None:
        check_image(form, data, "/x")
        return
    with pytest.raises(PveException, match=message):
        check_image(form, data, "/x")


def test_the_virtual_size_of_an_image() -> None:
    assert virtual_size("qcow2", qcow2_bytes(5 << 30)) == 5 << 30
    assert virtual_size("raw", b"x") is None


@pytest.mark.parametrize(
    "params, status",
    [
        pytest.param({"url": "http://web/a.iso"}, "OK", id="listed"),
        pytest.param({"url": "http://web/b.iso"}, "download failed: exit code 8", id="404"),
        pytest.param({"url": "http://127.0.0.1:9/a.iso"},
                     "download failed: Connecting to 127.0.0.1:9... failed: Connection refused.",
                     id="refused"),
        pytest.param({"url": "http://web/a.iso", "compression": "rar"},
                     "no decompression method found", id="unknown compression"),
        pytest.param({"url": "http://web/a.iso.gz", "compression": "gz"}, "OK", id="gzip"),
        pytest.param({"url": "http://elsewhere/a.iso"}, "OK", id="other servers have an image"),
        pytest.param({"url": "http://web/a.iso?token=1"}, "OK", id="a query"),
        pytest.param({"url": "http://web/%61.iso"}, "OK", id="an escaped character"),
        pytest.param({"url": "https://web/a.iso"},
                     "download failed: Unable to establish SSL connection.", id="no TLS"),
    ],
)  # fmt: skip
def test_downloads(params: dict[str, str], status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.files["http://web/a.iso"] = {"size": 100, "fill": "x"}
        sim.region.files["http://web/a.iso.gz"] = {"size": 100, "fill": "x", "gzip": True}
        path = "/nodes/n1/storage/shared/download-url"
        ended = await sim.run_task("POST", path, content="iso", filename="a.iso", **params)
        assert ended.status == status
        if status == "OK":
            again = await sim.run_task("POST", path, content="iso", filename="a.iso", **params)
            assert again.status.startswith("refusing to override existing file")

    run_session(body)


FIRST = hashlib.sha256(b"x" * 100).hexdigest()
FAILED = r"command '{} /mnt/pve/shared/template/iso/a.iso.tmp_dwnl.\d+' failed: exit code {}"


@pytest.mark.parametrize(
    "wanted, status",
    [
        pytest.param(FIRST, "OK", id="the right file"),
        pytest.param(FIRST.upper(), "OK", id="in capitals"),
        pytest.param("0" * 64,
                     f"checksum mismatch: got '{FIRST}' != expect '{'0' * 64}', aborting",
                     id="another file"),
    ],
)  # fmt: skip
def test_a_file_that_exists_is_compared_with_the_checksum(wanted: str, status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.files["http://web/a.iso"] = {"size": 100, "fill": "x"}
        path = "/nodes/n1/storage/shared/download-url"
        form = {"url": "http://web/a.iso", "content": "iso", "filename": "a.iso"}
        await sim.run_task("POST", path, **form)
        checksum = {"checksum": wanted, "checksum-algorithm": "sha256"}
        ended = await sim.run_task("POST", path, **form, **checksum)
        assert ended.status == status

    run_session(body)


@pytest.mark.parametrize(
    "url, compression, status",
    [
        pytest.param("http://web/a.iso", "gz", FAILED.format("zcat", 1), id="no gzip"),
        pytest.param("http://web/a.iso", "zst", FAILED.format("zstd -q -d -c", 1), id="no zstd"),
        pytest.param("http://web/a.iso.gz", "zst", "OK", id="zstd reads gzip"),
        pytest.param("http://web/a.iso.gz", "bz2", FAILED.format("bzcat -q", 2), id="no bzip2"),
        pytest.param("http://web/a.iso.gz", "lzo", FAILED.format("lzop -d -c", 1), id="no lzo"),
    ],
)
def test_each_tool_reads_its_own_format(url: str, compression: str, status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.files["http://web/a.iso"] = {"size": 100, "fill": "x"}
        sim.region.files["http://web/a.iso.gz"] = {"size": 100, "fill": "x", "gzip": True}
        path = "/nodes/n1/storage/shared/download-url"
        form = {"url": url, "content": "iso", "filename": "a.iso", "compression": compression}
        ended = await sim.run_task("POST", path, **form)
        assert re.fullmatch(status, ended.status)

    run_session(body, "9.2.11")


@pytest.mark.parametrize(
    "storage, volume, message",
    [
        pytest.param("shared", "import/no.ova",
                     "command 'tar -xO --wildcards '--occurrence=1' -f"
                     " /mnt/pve/shared/import/no.ova '*.ovf'' failed: exit code 2", id="missing"),
        pytest.param("shared", "import/image.qcow2", "invalid format", id="an image"),
        pytest.param("shared", "iso/cidata.iso", "invalid content type 'iso'", id="an ISO"),
        pytest.param("shared", "100/vm-100-disk-0.raw", "invalid content type 'images'", id="disk"),
        pytest.param("shared", "import/a", "unable to parse directory volume name 'import/a'",
                     id="no name"),
        pytest.param("thin", "vm-100-disk-0", "storage does not support the importer API",
                     id="no file storage"),
        pytest.param("nosuch", "import/a.ova", "storage 'nosuch' does not exist", id="no storage"),
    ],
)  # fmt: skip
def test_only_appliances_have_import_metadata(storage: str, volume: str, message: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        path = f"/nodes/n1/storage/{storage}/import-metadata"
        answer = await sim.request("GET", path, {"volume": volume})
        assert (answer.status, answer.message) == (500, message)

    run_session(body, "9.2.11")


@pytest.mark.parametrize(
    "url, name",
    [
        pytest.param("http://web/a.iso", "a.iso", id="plain"),
        pytest.param("http://web/a.iso?x=/y", "a.iso", id="a query"),
        pytest.param("http://web/%61.iso", "%61.iso", id="an escaped character stays"),
    ],
)
def test_what_servers_say_about_a_url(url: str, name: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.files["http://web/a.iso"] = {"size": 100}
        found = await sim.get("/nodes/n1/query-url-metadata", url=url)
        assert found == {"filename": name, "size": 100,
                         "mimetype": "application/x-iso9660-image"}  # fmt: skip
        answer = await sim.request(
            "GET", "/nodes/n1/query-url-metadata", {"url": "https://web/a.iso"}
        )
        assert "500 Can't connect to web:443 (SSL connect attempt failed" in answer.message
        failure = web.fetch(sim.region, "http://web/x")
        assert isinstance(failure, web.WebFailure)
        assert failure.as_response == "404 File not found"

    run_session(body)


@pytest.mark.parametrize(
    "source, status",
    [
        pytest.param("shared:101/vm-101-disk-0.raw", "OK", id="a disk of a VM on this node"),
        pytest.param("shared:101/vm-101-cloudinit.qcow2", "cannot import from cloudinit disk",
                     id="a cloud-init drive"),
        pytest.param("shared:102/vm-102-disk-0.raw", "owner VM 102 not on local node",
                     id="a disk of a VM elsewhere"),
    ],
)  # fmt: skip
def test_which_disks_can_be_imported(source: str, status: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(101, scsi0="shared:1", ide2="shared:cloudinit")
        await sim.run_task("POST", "/nodes/n2/qemu", vmid="102", scsi0="shared:1")
        new = f"shared:0,import-from={source}"
        ended = await sim.run_task("POST", "/nodes/n1/qemu", vmid="100", scsi0=new)
        refusal = f"unable to create VM 100 - cannot import from '{source}' - {status}"
        assert ended.status == ("OK" if status == "OK" else refusal)

    run_session(body, "9.2.11")


BACKUP = "vzdump-qemu-100-2026_01_01-00_00_00.vma.zst"
NEEDS_SERVER = {"storage": "Only PBS storages supported for file-restore."}


@pytest.mark.parametrize(
    "volume, message, errors",
    [
        pytest.param(f"shared:backup/{BACKUP}", "", NEEDS_SERVER, id="a volume id"),
        pytest.param(f"backup/{BACKUP}", "", NEEDS_SERVER, id="a volume name"),
        pytest.param(BACKUP, "", NEEDS_SERVER, id="a file name"),
        pytest.param(f"local:backup/{BACKUP}", "",
                     {"volume": "storage ID mismatch (local != shared)."}, id="of another storage"),
        pytest.param("shared:iso/cidata.iso", "unable to use volume shared:iso/cidata.iso -"
                     " content type needs to be 'backup'", {}, id="no backup"),
        pytest.param("x", "unable to parse directory volume name 'backup/x'", {}, id="no name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("action", ["list", "download"])
def test_files_are_restored_from_a_backup_server_only(
    action: str, volume: str, message: str, errors: dict[str, str]
) -> None:
    async def body(sim: SimulatorSession) -> None:
        path = f"/nodes/n1/storage/shared/file-restore/{action}"
        answer = await sim.request("GET", path, {"volume": volume, "filepath": "/"})
        assert (answer.status, answer.errors) == (400 if errors else 500, errors)
        assert errors or answer.message == message

    run_session(body, "9.2.11")
