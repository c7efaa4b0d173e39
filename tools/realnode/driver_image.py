"""
The image of Moxwell for real nodes: the Containerfile executed on this source tree.

``python -m realnode.driver_image`` makes it, in the cache of envtest, once per state of the source;
it needs the network. Nodes import it under the name that ``release/csi.yaml`` uses.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from envtest import debian, locate
from realnode import images
from support.containerfile import Build

ROOT = Path(__file__).parents[2]
INPUTS = ("requirements.lock", ".containerignore", "Containerfile", "pyproject.toml", "README.md")


def name() -> str:
    """The name of the image in the manifest of the CSI driver."""
    for tree in yaml.safe_load_all((ROOT / "release/csi.yaml").read_text()):
        if tree["kind"] == "DaemonSet":
            return str(tree["spec"]["template"]["spec"]["containers"][0]["image"])
    raise LookupError("release/csi.yaml has no DaemonSet")


def folder() -> Path:
    """A layer of a root file system that contains the archive, made or not."""
    files = [ROOT / name for name in INPUTS if (ROOT / name).exists()]
    files += sorted(p for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc")
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return locate.cache() / f"node-image-{digest.hexdigest()[:12]}"


def layers() -> tuple[Path, ...]:
    """The layer, if it was made."""
    return (folder(),) if folder().exists() else ()


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
    context, target = scratch / "context", scratch / "made" / "opt" / "images"
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
    images.write_images(target / "moxwell.tar", layer, {name(): config})


def main() -> int:
    sys.stdout.write(f"realnode: image {name()} in {make()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
