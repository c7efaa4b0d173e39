"""Volumes on storages: names, shelves, content endpoints, uploads, backups."""
