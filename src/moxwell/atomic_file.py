"""Replaces a file in one step, so that a crash leaves the old content or the new, never a part."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """
    Write a file with mode 0600 under a temporary name and rename it; creates its folder.

    ``durable`` also waits until the disk has the data. After an error the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
