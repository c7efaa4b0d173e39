"""
Write the CRDs of the chart: ``chart.py``; ``make chart`` runs it.

The files under ``charts/moxwell/files/crds`` are the CRDs of ``moxwell render crds`` and those of
the autoscaler's kinds, one per file.
"""

from collections.abc import Mapping
from pathlib import Path

from moxwell.api import crd, registry
from moxwell.api.karpenter import capacity, nodeclaims, nodepools, proxmox, proxmox_templates

FOLDER = Path(__file__).parents[1] / "charts" / "moxwell" / "files" / "crds"
WEBHOOK = crd.ConversionWebhook(service="moxwell-webhook-service", namespace="moxwell-system")
SCALING = (
    *nodepools.KINDS,
    *nodeclaims.KINDS,
    *capacity.KINDS,
    *proxmox.KINDS,
    *proxmox_templates.KINDS,
)


def files() -> Mapping[str, str]:
    """The text of each file by name."""
    trees = registry.make_crds(upstream=False, webhook=WEBHOOK)
    trees = (*trees, *crd.crds(SCALING))
    return {f"{t['metadata']['name']}.yaml": crd.render([t]).removeprefix("---\n") for t in trees}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.yaml"):
        old.unlink()
    for name, text in files().items():
        (FOLDER / name).write_text(text)
