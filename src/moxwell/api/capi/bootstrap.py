"""
KubeadmConfig and KubeadmConfigTemplate of Cluster API, in v1beta2 and v1beta1.

Both versions share their Structs except for the kubelet's flags, which are a map in v1beta1 and a
list in v1beta2. Other parts of kubeadm's configuration are kept as plain JSON.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from moxwell.api.capi.shared import BOOTSTRAP, CONTRACT, UPSTREAM, MachineTaint
from moxwell.api.conditions import Condition, LegacyCondition
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value

AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Arg(Value, frozen=True, kw_only=True):
    """One command-line flag."""

    name: str
    value: str = ""


class NodeRegistration(Value, frozen=True, kw_only=True):
    """How kubeadm registers the node."""

    name: str = ""
    cri_socket: str = field(name="criSocket", default="")
    taints: tuple[MachineTaint, ...] | None = None
    kubelet_extra_args: tuple[Arg, ...] = field(name="kubeletExtraArgs", default=())
    ignore_preflight_errors: tuple[str, ...] = field(name="ignorePreflightErrors", default=())
    image_pull_policy: str = field(name="imagePullPolicy", default="")


class BootstrapToken(Value, frozen=True, kw_only=True):
    """The bootstrap token and the CA hashes for discovery of the control plane."""

    token: str = ""
    api_server_endpoint: str = field(name="apiServerEndpoint", default="")
    ca_cert_hashes: tuple[str, ...] = field(name="caCertHashes", default=())
    unsafe_skip_ca_verification: bool | None = field(name="unsafeSkipCAVerification", default=None)


class KubeadmDiscovery(Value, frozen=True, kw_only=True):
    """How a joining node discovers the control plane."""

    bootstrap_token: BootstrapToken | None = field(name="bootstrapToken", default=None)
    file: Mapping[str, Any] | None = None
    tls_bootstrap_token: str = field(name="tlsBootstrapToken", default="")


class JoinConfiguration(Value, frozen=True, kw_only=True):
    """The configuration of ``kubeadm join``."""

    node_registration: NodeRegistration = field(
        name="nodeRegistration", default_factory=NodeRegistration
    )
    ca_cert_path: str = field(name="caCertPath", default="")
    discovery: KubeadmDiscovery = field(default_factory=KubeadmDiscovery)
    control_plane: Mapping[str, Any] | None = field(name="controlPlane", default=None)
    skip_phases: tuple[str, ...] = field(name="skipPhases", default=())
    patches: Mapping[str, Any] | None = None


class SecretKey(Value, frozen=True, kw_only=True):
    name: str
    key: str


class ContentFrom(Value, frozen=True, kw_only=True):
    secret: SecretKey


class File(Value, frozen=True, kw_only=True):
    """A file to write on the new node."""

    path: str
    owner: str = ""
    permissions: str = ""
    encoding: Literal["", "base64", "gzip", "gzip+base64"] = ""
    append: bool | None = None
    content: str = ""
    content_from: ContentFrom | None = field(name="contentFrom", default=None)


class PasswdFrom(Value, frozen=True, kw_only=True):
    secret: SecretKey


class CloudInitUser(Value, frozen=True, kw_only=True):
    """A login user that cloud-init creates."""

    name: str
    gecos: str = ""
    groups: str = ""
    home_dir: str = field(name="homeDir", default="")
    inactive: bool | None = None
    shell: str = ""
    passwd: str = ""
    passwd_from: PasswdFrom | None = field(name="passwdFrom", default=None)
    primary_group: str = field(name="primaryGroup", default="")
    lock_password: bool | None = field(name="lockPassword", default=None)
    sudo: str = ""
    ssh_authorized_keys: tuple[str, ...] = field(name="sshAuthorizedKeys", default=())


class Ntp(Value, frozen=True, kw_only=True):
    """NTP servers of the node."""

    servers: tuple[str, ...] = ()
    enabled: bool | None = None


class KubeadmConfigSpec(Value, frozen=True, kw_only=True):
    """The desired bootstrap configuration of a node."""

    cluster_configuration: Mapping[str, Any] | None = field(
        name="clusterConfiguration", default=None
    )
    init_configuration: Mapping[str, Any] | None = field(name="initConfiguration", default=None)
    join_configuration: JoinConfiguration | None = field(name="joinConfiguration", default=None)
    files: tuple[File, ...] = ()
    disk_setup: Mapping[str, Any] | None = field(name="diskSetup", default=None)
    mounts: tuple[tuple[str, ...], ...] = ()
    boot_commands: tuple[str, ...] = field(name="bootCommands", default=())
    pre_kubeadm_commands: tuple[str, ...] = field(name="preKubeadmCommands", default=())
    post_kubeadm_commands: tuple[str, ...] = field(name="postKubeadmCommands", default=())
    users: tuple[CloudInitUser, ...] = ()
    ntp: Ntp | None = None
    format: Literal["", "cloud-config", "ignition"] = ""
    verbosity: int | None = None
    ignition: Mapping[str, Any] | None = None


class BootstrapInitialization(Value, frozen=True, kw_only=True):
    """Initialization milestones; once true they stay true."""

    data_secret_created: bool | None = field(name="dataSecretCreated", default=None)


class KubeadmConfigStatus(Value, frozen=True, kw_only=True):
    """The observed state of a KubeadmConfig, with the name of the bootstrap data Secret."""

    conditions: tuple[Condition, ...] = ()
    initialization: BootstrapInitialization = field(default_factory=BootstrapInitialization)
    data_secret_name: str = field(name="dataSecretName", default="")
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=BOOTSTRAP,
    version="v1beta2",
    plural="kubeadmconfigs",
    labels=CONTRACT,
    columns=(
        Column("Cluster", r".metadata.labels['cluster\.x-k8s\.io/cluster-name']"),
        Column("Data secret created", ".status.initialization.dataSecretCreated", "boolean"),
        AGE,
    ),
    **UPSTREAM,
)
class KubeadmConfig(Object, frozen=True, kw_only=True):
    """The kubeadm bootstrap configuration of one machine."""

    spec: KubeadmConfigSpec = field(default_factory=KubeadmConfigSpec)
    status: KubeadmConfigStatus = field(default_factory=KubeadmConfigStatus)


class KubeadmConfigTemplateResource(Value, frozen=True, kw_only=True):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: KubeadmConfigSpec = field(default_factory=KubeadmConfigSpec)


class KubeadmConfigTemplateSpec(Value, frozen=True, kw_only=True):
    template: KubeadmConfigTemplateResource = field(default_factory=KubeadmConfigTemplateResource)


TEMPLATE = {**UPSTREAM, "status": False}


@kind(
    group=BOOTSTRAP,
    version="v1beta2",
    plural="kubeadmconfigtemplates",
    labels=CONTRACT,
    columns=(AGE,),
    **TEMPLATE,
)
class KubeadmConfigTemplate(Object, frozen=True, kw_only=True):
    """The kubeadm bootstrap configuration that machines of a MachineDeployment are created with."""

    spec: KubeadmConfigTemplateSpec = field(default_factory=KubeadmConfigTemplateSpec)


class NodeRegistrationV1Beta1(NodeRegistration, frozen=True, kw_only=True):
    """How kubeadm registers the node, in v1beta1; flags are a map."""

    kubelet_extra_args: Mapping[str, str] = field(  # type: ignore[assignment]
        name="kubeletExtraArgs", default_factory=dict
    )


class JoinConfigurationV1Beta1(JoinConfiguration, frozen=True, kw_only=True):
    """The configuration of ``kubeadm join``, in v1beta1."""

    node_registration: NodeRegistrationV1Beta1 = field(
        name="nodeRegistration", default_factory=NodeRegistrationV1Beta1
    )


class KubeadmConfigSpecV1Beta1(KubeadmConfigSpec, frozen=True, kw_only=True):
    """The desired bootstrap configuration of a node, in v1beta1."""

    join_configuration: JoinConfigurationV1Beta1 | None = field(
        name="joinConfiguration", default=None
    )
    use_experimental_retry_join: bool | None = field(name="useExperimentalRetryJoin", default=None)


class KubeadmConfigStatusV1Beta1(Value, frozen=True, kw_only=True):
    """The observed state of a KubeadmConfig, in v1beta1."""

    ready: bool = False
    data_secret_name: str | None = field(name="dataSecretName", default=None)
    conditions: tuple[LegacyCondition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


class KubeadmConfigTemplateResourceV1Beta1(Value, frozen=True, kw_only=True):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: KubeadmConfigSpecV1Beta1 = field(default_factory=KubeadmConfigSpecV1Beta1)


class KubeadmConfigTemplateSpecV1Beta1(Value, frozen=True, kw_only=True):
    template: KubeadmConfigTemplateResourceV1Beta1 = field(
        default_factory=KubeadmConfigTemplateResourceV1Beta1
    )


OLDER: dict[str, Any] = {"storage": False, "labels": CONTRACT, "columns": (AGE,)}


@kind(
    group=BOOTSTRAP,
    version="v1beta1",
    plural="kubeadmconfigs",
    name="KubeadmConfig",
    **OLDER,
    **UPSTREAM,
)
class KubeadmConfigV1Beta1(Object, frozen=True, kw_only=True):
    """The kubeadm bootstrap configuration of one machine."""

    spec: KubeadmConfigSpecV1Beta1 = field(default_factory=KubeadmConfigSpecV1Beta1)
    status: KubeadmConfigStatusV1Beta1 = field(default_factory=KubeadmConfigStatusV1Beta1)


@kind(
    group=BOOTSTRAP,
    version="v1beta1",
    plural="kubeadmconfigtemplates",
    name="KubeadmConfigTemplate",
    **OLDER,
    **TEMPLATE,
)
class KubeadmConfigTemplateV1Beta1(Object, frozen=True, kw_only=True):
    """The kubeadm bootstrap configuration that machines of a MachineDeployment are created with."""

    spec: KubeadmConfigTemplateSpecV1Beta1 = field(default_factory=KubeadmConfigTemplateSpecV1Beta1)


KINDS: tuple[type[Object], ...] = (
    KubeadmConfig,
    KubeadmConfigTemplate,
    KubeadmConfigV1Beta1,
    KubeadmConfigTemplateV1Beta1,
)
