"""
The options of an instance, which ``moxwell up`` stores and the daemon reads.

Imports little: the command that starts a daemon must not load what only the daemon needs.
"""

from pathlib import Path

import msgspec

from moxwell import config_file
from moxwell.app.state_dir import InstanceInfo, StateDir, rename_old_keys
from moxwell.embedded.controlplanes import addresses
from moxwell.errors import Invalid, Missing
from moxwell.pve import config

BINARIES_KEYWORDS = ("", "no", "installed")
AUTOSCALER_MODES = ("", "exact", "optimise")


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance should run."""

    name: str
    config: str = ""  # a file with regions; empty: the lab
    world: str = ""  # the file that describes the lab's simulated Proxmox; empty: the built-in one
    control_plane_binaries: str = ""  # "installed", a folder, or "no"; empty: as last time
    autoscaler_mode: str = ""  # "exact" or "optimise"; empty: as in the file, or as last time


def decode(data: bytes) -> LaunchOptions:
    """Read stored options, also those of an earlier version."""
    return msgspec.convert(rename_old_keys(msgspec.json.decode(data)), LaunchOptions)


def stored(state: StateDir) -> LaunchOptions | None:
    """The options of the last start; None if there was none."""
    for file in (state.launch_options, state.folder / "wanted.json"):  # an earlier version's name
        if file.exists():
            return decode(file.read_bytes())
    return None


def with_defaults(options: LaunchOptions, last: LaunchOptions | None) -> LaunchOptions:
    """The options with unset ones from the configuration file, else from the last start."""
    mode = options.autoscaler_mode or (last.autoscaler_mode if last else "")
    options = msgspec.structs.replace(options, autoscaler_mode=mode)
    if options.control_plane_binaries:
        return options
    configured = config.control_plane_binaries(Path(options.config)) if options.config else ""
    inherited = configured or (last.control_plane_binaries if last else "")
    return msgspec.structs.replace(options, control_plane_binaries=inherited)


def restart_message(options: LaunchOptions, info: InstanceInfo) -> str:
    """Which options a running instance does not have; empty if it has all of them."""
    wanted, current = options.control_plane_binaries, info.control_plane_binaries
    differs = {
        "--config": options.config and options.config != info.config,
        "--world": options.world and options.world != info.world,
        "--control-plane-binaries": wanted and wanted != (current or "no"),
        "--autoscaler-mode": options.autoscaler_mode
        and options.autoscaler_mode != (info.autoscaler_mode or "optimise"),
    }
    names = [option for option, different in differs.items() if different]
    if not names:
        return ""
    verb = "takes" if len(names) == 1 else "take"
    return (
        f"{' and '.join(names)} {verb} effect at the next start: "
        "`moxwell down`, then this command again"
    )


def _check_autoscaler(text: str) -> None:
    """Refuse wrong settings of the autoscaler; most files have none, and nothing is loaded."""
    if "autoscaler" in (config_file.parse_mapping(text).get("features") or {}):
        from moxwell.controllers.karpenter.options import parse_config

        parse_config(text)


def check(options: LaunchOptions) -> None:
    """Refuse options that cannot work, before anything is started."""
    StateDir(options.name, {"HOME": "/"})
    if options.autoscaler_mode not in AUTOSCALER_MODES:
        raise Invalid(f"--autoscaler-mode must be exact or optimise, not {options.autoscaler_mode}")
    binaries = options.control_plane_binaries
    if options.config:
        _check_file(options.config, "configuration file")
        config.load(Path(options.config))
        config.control_plane_binaries(Path(options.config))
        text = config_file.read_text(Path(options.config))
        addresses.parse(text).check()
        _check_autoscaler(text)
    if binaries not in BINARIES_KEYWORDS and not Path(binaries).is_dir():
        raise Missing(f"the folder {binaries} with control plane binaries does not exist")
    if options.world:
        from moxwell.lab.proxmox import world

        _check_file(options.world, "world file")
        world.load_world(Path(options.world), 0)


def _check_file(path: str, noun: str) -> None:
    if Path(path).is_dir():
        raise Invalid(f"the {noun} {path} is a directory")
    if not Path(path).is_file():
        raise Missing(f"the {noun} {path} does not exist")
