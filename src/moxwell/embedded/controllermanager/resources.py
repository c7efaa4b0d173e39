"""Resources of Kubernetes kinds that the embedded controllers read and write as dicts."""

from moxwell.api.kinds import Resource

STORAGE_GROUP, SNAPSHOT_GROUP = "storage.k8s.io", "snapshot.storage.k8s.io"

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
SERVICES = Resource("", "v1", "services", "Service")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CERTIFICATE_SIGNING_REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False
)

PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
STORAGE_CLASSES = Resource(STORAGE_GROUP, "v1", "storageclasses", "StorageClass", namespaced=False)
VOLUME_ATTACHMENTS = Resource(
    STORAGE_GROUP, "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
CSI_NODES = Resource(STORAGE_GROUP, "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource(STORAGE_GROUP, "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_STORAGE_CAPACITIES = Resource(STORAGE_GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity")
VOLUME_SNAPSHOTS = Resource(SNAPSHOT_GROUP, "v1", "volumesnapshots", "VolumeSnapshot")
VOLUME_SNAPSHOT_CONTENTS = Resource(
    SNAPSHOT_GROUP, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", namespaced=False
)
VOLUME_SNAPSHOT_CLASSES = Resource(
    SNAPSHOT_GROUP, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False
)
