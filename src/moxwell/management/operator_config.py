"""The configuration of the operator in the management cluster: the regions, without paths. Pure."""

from collections.abc import Iterable
from typing import Any

import yaml

from moxwell.pve.config import PasswordAuth, RegionConfig

Json = dict[str, Any]


def config_files(regions: Iterable[RegionConfig]) -> dict[str, str]:
    """The files of the Secret by name: ``config.yaml``, and the CA of each region that has one."""
    known = tuple(regions)
    files = {f"ca-{r.region}.pem": r.ca_pem for r in known if r.ca_pem}
    clusters = [_block(region) for region in known]
    return {"config.yaml": yaml.safe_dump({"clusters": clusters}, sort_keys=False), **files}


def _block(config: RegionConfig) -> Json:
    block: Json = {"region": config.region, "urls": list(config.urls)}
    auth = config.auth
    if isinstance(auth, PasswordAuth):
        block |= {"username": auth.username, "password": auth.password.reveal()}
    else:
        block |= {"token_id": auth.token_id, "token_secret": auth.secret.reveal()}
    if config.ca_pem:
        block["ca_file"] = f"ca-{config.region}.pem"
    if config.fingerprint:
        block["fingerprint"] = config.fingerprint
    if config.insecure:
        block["insecure"] = True
    if config.zones:
        block["zones"] = {name: list(hosts) for name, hosts in config.zones.items()}
    return block
