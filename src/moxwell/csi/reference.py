"""
Renders the reference page of StorageClass parameters from the table in parameters.py.

A test compares the result with ``docs/reference/storageclass.md``.
"""

from collections.abc import Iterable

from moxwell.csi.parameters import SNAPSHOT_CLASS, STORAGE_CLASS, Parameter

_TOP = """# StorageClass parameters

Generated from `moxwell.csi.parameters`; a test compares them. Unknown parameters are rejected.

"""
_AFTER = """
The parameters of the sidecars work as usual: `csi.storage.k8s.io/fstype` (`ext4`, `xfs`), and the
secrets `csi.storage.k8s.io/node-stage-secret-*` and `node-expand-secret-*`. If the secret has the
key `encryption-passphrase`, the volume is encrypted with LUKS2.
"""


def _rows(parameters: Iterable[Parameter]) -> list[str]:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for p in parameters:
        kind = p.kind.replace("|", ", ")
        rows.append(f"| `{p.key}` | {kind} | {f'`{p.default}`' if p.default else ''} | {p.text} |")
    return rows


def render() -> str:
    """The page as Markdown."""
    mutable = [p for p in STORAGE_CLASS if p.mutable]
    parts = [
        _TOP + "\n".join(_rows(STORAGE_CLASS)) + "\n" + _AFTER,
        "## VolumeAttributesClass\n\n" + "\n".join(_rows(mutable)) + "\n",
        "## VolumeSnapshotClass\n\n" + "\n".join(_rows(SNAPSHOT_CLASS)) + "\n",
    ]
    return "\n".join(parts)
