"""``moxwell cluster versions`` and ``cluster sizes``: list what a new cluster can use."""

from typing import Any

from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, show
from moxwell.controllers.tenancy.cluster import instance_types

Json = dict[str, Any]


def versions(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """List the Kubernetes versions that templates in Proxmox have."""
    rows = ask(name, "versions")["rows"]
    show(rows, ("version", "regions", "templates"), output)


def sizes(output: Format = Output.TABLE) -> None:
    """List the instance types of nodes."""
    show(size_rows(), ("instance type", "cpu", "memory"), output)


def size_rows() -> list[Json]:
    """Every instance type with its cores and memory, the smallest series first."""
    return [
        {"instance type": name, "cpu": size.cores, "memory": f"{size.memory_mib / 1024:g} GiB"}
        for name, size in instance_types.every().items()
    ]
