"""
Region configurations for commands that call Proxmox themselves, such as ``moxwell volume``.

They are those of the running daemon. The lab's token is not a secret: it is valid only in the
simulator, so it is in the code.
"""

from pathlib import Path

from moxwell.app.state_dir import InstanceInfo, StateDir
from moxwell.pve import config
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.values import SecretValue

TOKEN = "moxwell@pve!lab"
TOKEN_SECRET = "6c61622d-0000-4000-8000-6d6f7877656c"  # of the simulator only


def region_configs(state: StateDir, info: InstanceInfo) -> tuple[RegionConfig, ...]:
    """The regions of a running instance."""
    if info.config:
        return config.load(Path(info.config))
    ca = (state.folder / "simulator" / "ca.pem").read_text()
    auth = TokenAuth(TOKEN, SecretValue(TOKEN_SECRET))
    return tuple(
        RegionConfig(region=name, urls=tuple(urls), auth=auth, ca_pem=ca)
        for name, urls in info.regions.items()
    )
