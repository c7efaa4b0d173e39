"""
The reference page of StorageClass parameters, made from the table that parses them.

Out: Markdown; a test compares it with ``docs/reference/storageclass.md``.
"""

from collections.abc import Iterable

from moxwell.csi.parameters import SNAPSHOT_CLASS, STORAGE_CLASS, Parameter

_TOP = """# StorageClass parameters

Made from the code (`moxwell.csi.parameters`); a test keeps it true. What is unknown is refused by name.

"""
_AFTER = """
The sidecars' own keys work as everywhere: `csi.storage.k8s.io/fstype` (`ext4`, `xfs`), and the
secrets `csi.storage.k8s.io/node-stage-secret-*` and `node-expand-secret-*`, whose key
`encryption-passphrase` encrypts the volume with LUKS2.
"""


def _rows(parameters: Iterable[Parameter]) -> list[str]:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for p in parameters:
        kind = p.kind.replace("|", ", ")
        rows.append(f"| `{p.key}` | {kind} | {f'`{p.default}`' if p.default else ''} | {p.text} |")
    return rows


def render() -> str:
    """The whole page."""
    mutable = [p for p in STORAGE_CLASS if p.mutable]
    parts = [
        _TOP + "\n".join(_rows(STORAGE_CLASS)) + "\n" + _AFTER,
        "## VolumeAttributesClass\n\n" + "\n".join(_rows(mutable)) + "\n",
        "## VolumeSnapshotClass\n\n" + "\n".join(_rows(SNAPSHOT_CLASS)) + "\n",
    ]
    return "\n".join(parts)
