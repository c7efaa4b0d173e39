"""The routes of all volume endpoints."""

from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.volumes import backup, content, download, file_restore, prune, transfer

ROUTES: tuple[ApiRoute, ...] = (
    *content.ROUTES,
    *transfer.ROUTES,
    *download.ROUTES,
    *backup.ROUTES,
    *prune.ROUTES,
    *file_restore.ROUTES,
)
