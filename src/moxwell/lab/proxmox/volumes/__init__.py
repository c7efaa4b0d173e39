"""Volumes on storages: names, allocation, content endpoints, uploads, backups."""
