"""``moxwell operator``: runs the controllers against an existing Kubernetes API."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.cli.dataclass_options import command
from moxwell.cli.go_flags import duration

if TYPE_CHECKING:  # a command loads what it needs when it runs
    from moxwell.app.operator import OperatorOptions
    from moxwell.runtime.settings import LeaseTimes, ManagerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFlags:
    """The flags of the command; the second half are those of a cloud controller manager."""

    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "--cloud-config",
            envvar="CLOUD_CONFIG",
            help="File with the regions (clusters: [...]). Without cloud controllers it may name "
            "no region, and the default file may be missing.",
        ),
    ] = Path("/etc/proxmox/config.yaml")
    controllers: Annotated[
        str,
        typer.Option(
            "--controllers",
            help="Comma-separated list of infra, tenancy, karpenter, cloud (or cloud-node, "
            "cloud-node-lifecycle, service). Default: infra,tenancy, or cloud with "
            "--cloud-provider.",
        ),
    ] = ""
    scaled_cluster: Annotated[
        str,
        typer.Option(
            "--scaled-cluster",
            help="NAMESPACE/NAME of the Cluster object of the cluster that karpenter scales: the "
            "one it runs in.",
        ),
    ] = ""
    instance_types_file: Annotated[
        str,
        typer.Option(
            "--instance-types-file",
            envvar="INSTANCE_TYPES_FILE",
            help="JSON file with the instance types of karpenter. Default: families of sizes.",
        ),
    ] = ""
    node_setting_file: Annotated[
        str,
        typer.Option(
            "--node-setting-file",
            envvar="NODE_SETTING_FILE",
            help="JSON file with NUMA nodes, reserved CPUs and overcommitment of hosts.",
        ),
    ] = ""
    node_policy: Annotated[
        str,
        typer.Option(
            "--node-policy",
            envvar="NODE_POLICY",
            help="How nodes use their host: simple, numa or static (pinned CPUs). Default: simple.",
        ),
    ] = ""
    proxmox_vmid: Annotated[
        int,
        typer.Option(
            "--proxmox-vmid",
            envvar="PROXMOX_VMID",
            min=0,
            help="The lowest VMID of nodes. Default: the range of the ProxmoxCluster.",
        ),
    ] = 0
    autoscaler_mode: Annotated[
        str,
        typer.Option(
            "--autoscaler-mode",
            envvar="AUTOSCALER_MODE",
            help="How karpenter decides: optimise (cheaper, the default) or exact (as Karpenter).",
        ),
    ] = ""
    preference_policy: Annotated[
        str,
        typer.Option(
            "--preference-policy", envvar="PREFERENCE_POLICY", help="Respect (default) or Ignore."
        ),
    ] = ""
    min_values_policy: Annotated[
        str,
        typer.Option(
            "--min-values-policy",
            envvar="MIN_VALUES_POLICY",
            help="Strict (default) or BestEffort.",
        ),
    ] = ""
    batch_max_duration: Annotated[
        str,
        typer.Option(
            "--batch-max-duration",
            envvar="BATCH_MAX_DURATION",
            help="Longest time that pods are collected before karpenter decides. Default: 10s.",
        ),
    ] = ""
    batch_idle_duration: Annotated[
        str,
        typer.Option(
            "--batch-idle-duration",
            envvar="BATCH_IDLE_DURATION",
            help="Time without a new pending pod after which karpenter decides. Default: 1s.",
        ),
    ] = ""
    max_batch_pods: Annotated[
        str,
        typer.Option(
            "--max-batch-pods",
            envvar="MAX_BATCH_PODS",
            help="Greatest number of pods in one decision of karpenter. Default: 0, no limit.",
        ),
    ] = ""
    feature_gates: Annotated[
        str,
        typer.Option(
            "--feature-gates",
            envvar="FEATURE_GATES",
            help="Karpenter's gates, such as NodeRepair=true,SpotToSpotConsolidation=true.",
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        typer.Option("--kubeconfig", help="Kubeconfig; default: the service account of the pod."),
    ] = ""
    context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")] = ""
    namespace: Annotated[
        str,
        typer.Option("--namespace", help="Comma-separated namespaces to watch. Default: all."),
    ] = ""
    own_namespace: Annotated[
        str, typer.Option("--leader-elect-resource-namespace", help="Namespace of the Lease.")
    ] = ""
    leader_elect: Annotated[
        bool,
        typer.Option("--leader-elect/--no-leader-elect", help="Elect a leader among the replicas."),
    ] = True
    lease: Annotated[
        str, typer.Option("--leader-elect-resource-name", help="Name of the Lease.")
    ] = ""
    shards: Annotated[
        bool, typer.Option("--shard-by-region", help="Distribute the regions over the replicas.")
    ] = False
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Concurrent reconciles per region.")
    ] = 10
    health_port: Annotated[
        int, typer.Option("--health-port", help="Port of /healthz, /readyz and /metrics.")
    ] = 8081
    webhook_port: Annotated[
        int,
        typer.Option("--webhook-port", help="Port of the admission and conversion webhooks; 0 "
                     "disables them."),
    ] = 9443  # fmt: skip
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Refuse every write to Proxmox; the audit log shows what would be sent.",
        ),
    ] = False
    bind: Annotated[str, typer.Option("--bind-address", help="Address to listen on.")] = "0.0.0.0"
    provider: Annotated[
        str, typer.Option("--cloud-provider", help="proxmox: run the cloud controllers.")
    ] = ""
    secure_port: Annotated[
        int,
        typer.Option("--secure-port", help="Port of health and metrics over HTTPS; 0 disables it."),
    ] = 0
    refresh: Annotated[
        str,
        typer.Option("--node-status-update-frequency", help="Interval of updating addresses."),
    ] = "5m"
    monitor: Annotated[
        str, typer.Option("--node-monitor-period", help="Interval of checks of NotReady nodes.")
    ] = "5s"
    syncs: Annotated[
        int,
        typer.Option("--concurrent-node-syncs", min=0, help="Concurrent reconciles of nodes; 0: "
                     "as --concurrency."),
    ] = 0  # fmt: skip
    lease_duration: Annotated[
        str, typer.Option("--leader-elect-lease-duration", help="How long a Lease is valid.")
    ] = "15s"
    renew_deadline: Annotated[
        str,
        typer.Option("--leader-elect-renew-deadline", help="How long the leader tries to renew."),
    ] = "10s"
    retry_period: Annotated[
        str, typer.Option("--leader-elect-retry-period", help="Time between two attempts.")
    ] = "2s"
    verbosity: Annotated[
        int, typer.Option("--verbosity", "-v", help="Log verbosity; 4 and more: debug.")
    ] = 2
    accounts: Annotated[
        bool,
        typer.Option(
            "--use-service-account-credentials/--no-use-service-account-credentials", hidden=True
        ),
    ] = False
    lock: Annotated[str, typer.Option("--leader-elect-resource-lock", hidden=True)] = "leases"
    paths: Annotated[str, typer.Option("--authorization-always-allow-paths", hidden=True)] = ""
    cidrs: Annotated[
        bool, typer.Option("--allocate-node-cidrs/--no-allocate-node-cidrs", hidden=True)
    ] = False
    routes: Annotated[
        bool, typer.Option("--configure-cloud-routes/--no-configure-cloud-routes", hidden=True)
    ] = False
    profiling: Annotated[bool, typer.Option("--profiling/--no-profiling", hidden=True)] = False
    cluster_name: Annotated[str, typer.Option("--cluster-name", hidden=True)] = ""


@command(OperatorFlags)
def operator(flags: OperatorFlags) -> None:
    """Run the controllers against a Kubernetes cluster that has Cluster API and Kamaji."""
    from moxwell.cli import service_process

    if flags.provider not in {"", "proxmox"}:
        raise typer.BadParameter(f"{flags.provider!r} is not supported: use proxmox")
    level = "debug" if flags.verbosity >= 4 else "info"
    service_process.replace_by(service_process.OPERATOR, _options(flags), level)


def _options(flags: OperatorFlags) -> "OperatorOptions":
    from moxwell.app import controller_selection
    from moxwell.app.autoscaler_files import AutoscalerFiles
    from moxwell.app.operator import OperatorOptions
    from moxwell.controllers.cloud.loops import CloudIntervals

    names = _split(flags.controllers or ("cloud" if flags.provider else "infra,tenancy"))
    only_cloud = controller_selection.choose(names).only_cloud
    return OperatorOptions(
        config=flags.config,
        settings=_settings(flags, only_cloud=only_cloud),
        controllers=names,
        scaled_cluster=flags.scaled_cluster,
        provider_files=AutoscalerFiles(
            instance_types_file=flags.instance_types_file,
            node_setting_file=flags.node_setting_file,
            node_policy=flags.node_policy,
            proxmox_vmid=flags.proxmox_vmid,
        ),
        autoscaler=autoscaler_flags(flags),
        kubeconfig=flags.kubeconfig,
        context=flags.context,
        dry_run=flags.dry_run,
        intervals=CloudIntervals(
            refresh_seconds=duration(flags.refresh),
            monitor_seconds=duration(flags.monitor),
            concurrency=flags.syncs or None,
        ),
    )


def _settings(flags: OperatorFlags, *, only_cloud: bool) -> "ManagerSettings":
    """Names and ports as a cloud controller manager has them if only cloud controllers run."""
    from moxwell.runtime.settings import Listen, ManagerSettings

    bind, secure = flags.bind, flags.secure_port
    lease_name = "cloud-controller-manager-proxmox" if only_cloud else "moxwell"
    webhooks = flags.webhook_port and not only_cloud
    return ManagerSettings(
        identity=f"{socket.gethostname()}_{os.getpid()}",
        namespace=flags.own_namespace or ("kube-system" if only_cloud else "moxwell-system"),
        namespaces=_split(flags.namespace),
        concurrency=flags.concurrency,
        elect=flags.leader_elect,
        shards=flags.shards,
        lease_name=flags.lease or lease_name,
        lease_times=_lease_times(flags),
        health=Listen(host=bind, port=secure or flags.health_port, tls=bool(secure)),
        webhooks=Listen(host=bind, port=flags.webhook_port) if webhooks else None,
    )


def _lease_times(flags: OperatorFlags) -> "LeaseTimes":
    from moxwell.runtime.settings import LeaseTimes

    times = LeaseTimes(
        lease_duration=int(duration(flags.lease_duration)),
        renew_deadline=duration(flags.renew_deadline),
        retry_period=duration(flags.retry_period),
    )
    times.check()
    return times


def autoscaler_flags(flags: OperatorFlags) -> dict[str, str]:
    """The flags of the autoscaler that were given, under the names of the configuration file."""
    given = {
        "mode": flags.autoscaler_mode,
        "preferencePolicy": flags.preference_policy,
        "minValuesPolicy": flags.min_values_policy,
        "batchMaxDuration": flags.batch_max_duration,
        "batchIdleDuration": flags.batch_idle_duration,
        "maxBatchPods": flags.max_batch_pods,
        "featureGates": flags.feature_gates,
    }
    return {name: value for name, value in given.items() if value}


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
