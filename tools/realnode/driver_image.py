"""
Images for real nodes: the Containerfile executed on this source tree, and those of add-ons.

``python -m realnode.driver_image`` makes it, in the cache of envtest, once per state of the source;
it needs the network. Nodes import it under the name that ``release/csi.yaml`` uses. The
programs of add-ons are built from their Go modules.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from envtest import debian, locate
from envtest.table import BY_NAME, KONNECTIVITY, KUBERNETES
from moxwell.embedded.controlplanes.addons import coredns, metrics_server
from realnode import images
from realnode.images import LocalImage
from support.containerfile import Build

ROOT = Path(__file__).parents[2]
INPUTS = ("requirements.lock", ".containerignore", "Containerfile", "pyproject.toml", "README.md")
REPOSITORY = "localhost"
AGENT = f"proxy-agent:{KONNECTIVITY}"
ADDONS = {  # image: the program, its path, whether it needs the layer of our image
    f"kube-proxy:{KUBERNETES}": ("kube-proxy", "/usr/local/bin/kube-proxy", True),
    f"coredns/coredns:{coredns.VERSION}": ("coredns", "/coredns", False),
    f"metrics-server/metrics-server:{metrics_server.VERSION}": (
        "metrics-server", "/metrics-server", False,
    ),
    AGENT: ("konnectivity-agent", "/proxy-agent", False),
}  # fmt: skip


def name() -> str:
    """The name of the image in the manifest of the CSI driver."""
    for tree in yaml.safe_load_all((ROOT / "release/csi.yaml").read_text()):
        if tree["kind"] == "DaemonSet":
            return str(tree["spec"]["template"]["spec"]["containers"][0]["image"])
    raise LookupError("release/csi.yaml has no DaemonSet")


def folder() -> Path:
    """Where the layers of a root file system with the archives are, made or not."""
    files = [ROOT / name for name in INPUTS if (ROOT / name).exists()]
    files += sorted(p for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc")
    programs = [BY_NAME[program].folder for _, (program, _, _) in _installed()]
    digest = hashlib.sha256(" ".join(programs).encode())
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return locate.cache() / f"node-image-{digest.hexdigest()[:12]}"


def layers(*, addons: bool = True) -> tuple[Path, ...]:
    """The layers with the archives, if they were made."""
    names = ("moxwell", "addons") if addons else ("moxwell",)
    return tuple(folder() / name for name in names) if folder().exists() else ()


def make() -> Path:
    """Make the image unless it is there; images of other states of the source are deleted."""
    made = folder()
    if made.exists():
        return made
    if not debian.archive().exists() and not debian.make():
        raise SystemExit("realnode: no bare Debian file system (mmdebstrap)")
    for old in locate.cache().glob("node-image-*"):
        shutil.rmtree(old)
    with tempfile.TemporaryDirectory(dir=locate.cache(), prefix=".image-") as scratch:
        _build(Path(scratch))
        (Path(scratch) / "made").rename(made)
    return made


def _build(scratch: Path) -> None:
    context, target = scratch / "context", scratch / "made" / "moxwell" / "opt" / "images"
    context.mkdir()
    target.mkdir(parents=True)
    for file in ("requirements.lock", ".containerignore"):
        shutil.copy(ROOT / file, context)
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(context / "dist")]
    subprocess.run([sys.executable, *words, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    stage = Build(context, debian.archive(), scratch / "stages").run(
        (ROOT / "Containerfile").read_text()
    )
    layer = scratch / "layer.tar"
    tar = ["tar", "--numeric-owner", "-C", str(stage.root), "-cf", str(layer), "."]
    subprocess.run(tar, check=True)
    config = {
        "Entrypoint": list(stage.entrypoint),
        "Env": [f"{key}={value}" for key, value in stage.env.items()],
        "User": stage.user,
    }
    ours = LocalImage((layer,), config)
    images.write_images(target / "moxwell.tar", {name(): ours})
    others = scratch / "made" / "addons" / "opt" / "images"
    others.mkdir(parents=True)
    images.write_images(others / "addons.tar", _addons(scratch, layer))


def _installed() -> list[tuple[str, tuple[str, str, bool]]]:
    """The images whose programs are built."""
    return [row for row in ADDONS.items() if locate.is_installed(row[1][0])]


def _addons(scratch: Path, base: Path) -> dict[str, LocalImage]:
    """Images of the add-ons' programs; kube-proxy needs iptables, which ours has."""
    made = {}
    for image, (program, path, below) in _installed():
        file = scratch / f"{program}.tar"
        layer = images.write_program_layer(file, locate.program(program), path)
        layers = (base, layer) if below else (layer,)
        made[f"{REPOSITORY}/{image}"] = LocalImage(layers, {"Entrypoint": [path]})
    return made


def main() -> int:
    sys.stdout.write(f"realnode: image {name()} in {make()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
