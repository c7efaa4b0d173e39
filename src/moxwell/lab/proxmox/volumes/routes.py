"""All endpoints about volumes, in one list."""

from moxwell.lab.proxmox.route import Route
from moxwell.lab.proxmox.volumes import backup, content, prune, transfer

ROUTES: tuple[Route, ...] = (*content.ROUTES, *transfer.ROUTES, *backup.ROUTES, *prune.ROUTES)
