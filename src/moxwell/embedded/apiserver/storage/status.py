"""The state of a database as commands and metrics show it."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

PATH = "/moxwell/storage"  # of the requests about the database


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of one database."""

    path: str = ""
    revision: int = 0
    compacted: int = 0
    used_bytes: int = 0
    file_bytes: int = 0
    quota_bytes: int = 0
    history_bytes: int = 0
    alarms: tuple[str, ...] = ()  # NOSPACE, as etcd names it
    unreadable: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    rebuilt: str = ""
    backup_folder: str = ""
    backups: int = 0
    last_backup: str = ""
    backup_error: str = ""


def metrics_text(status: DatabaseStatus, counts: Mapping[str, int]) -> bytes:
    """Render the metrics in Prometheus' text format; upstream names where upstream has them."""
    made = datetime.fromisoformat(status.last_backup).timestamp() if status.last_backup else 0
    gauges = {
        'apiserver_storage_size_bytes{storage_cluster_id="embedded"}': status.used_bytes,
        "moxwell_storage_quota_bytes": status.quota_bytes,
        "moxwell_storage_alarm": len(status.alarms),
        "moxwell_storage_unreadable_objects": len(status.unreadable),
        "moxwell_backup_last_success_timestamp_seconds": made,
    }
    for name, count in counts.items():
        resource, _, group = name.partition(".")
        gauges[f'apiserver_resource_objects{{group="{group}",resource="{resource}"}}'] = count
    lines: list[str] = []
    for name, value in gauges.items():
        kind = f"# TYPE {name.partition('{')[0]} gauge"
        lines += [kind] if kind not in lines else []
        lines.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return ("\n".join(lines) + "\n").encode()
