"""The SQLite file of the embedded API server: rows, compaction, quota, salvage, backup, restore."""
