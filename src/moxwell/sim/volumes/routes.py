"""All endpoints about volumes, in one list."""

from moxwell.sim.route import Route
from moxwell.sim.volumes import backup, content, prune, transfer

ROUTES: tuple[Route, ...] = (*content.ROUTES, *transfer.ROUTES, *backup.ROUTES, *prune.ROUTES)
