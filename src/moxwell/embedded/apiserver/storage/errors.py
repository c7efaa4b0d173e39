"""The errors of the database file."""

from moxwell.errors import Busy, Invalid, Terminal


class DiskFull(Busy):
    """The disk is full; the transaction was rolled back and only its writes are lost."""

    reason = "StorageFull"


class DiskFailed(Terminal):
    """The disk failed and the outcome of the last transaction is unknown; writes stop."""

    reason = "StorageBroken"


class DatabaseDamaged(DiskFailed):
    """The file is damaged and its lost rows cannot be named; it is not served."""

    reason = "StorageDamaged"


class InvalidBackup(Invalid):
    """The file is not a complete backup."""

    reason = "InvalidBackup"
