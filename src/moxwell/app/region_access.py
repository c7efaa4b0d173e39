"""
How commands reach the Proxmox clusters of a running instance: as its daemon does.

In: what the daemon says of itself. Out: region configurations. Only commands that work on Proxmox
themselves need this (``volume``); everything else goes through objects. The surprise: the lab's
token is no secret, so it stands in the code; yours is read from the file the daemon was given.
"""

from pathlib import Path

from moxwell.app.state_dir import Facts, Home
from moxwell.pve import config
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.values import Secret

TOKEN = "moxwell@pve!lab"
TOKEN_SECRET = "6c61622d-0000-4000-8000-6d6f7877656c"  # of the simulated estate only


def region_configs(home: Home, facts: Facts) -> tuple[RegionConfig, ...]:
    """The regions of an instance."""
    if facts.config:
        return config.load(Path(facts.config))
    ca = (home.folder / "simulator" / "ca.pem").read_text()
    auth = TokenAuth(TOKEN, Secret(TOKEN_SECRET))
    return tuple(
        RegionConfig(region=name, urls=tuple(urls), auth=auth, ca_pem=ca)
        for name, urls in facts.regions.items()
    )
