"""Names of Karpenter's API that its controllers share: finalizer, annotations, taints, labels."""

from moxwell.api.core.nodes import Taint

FINALIZER = "karpenter.sh/termination"
HASH = "karpenter.sh/nodepool-hash"
HASH_VERSION = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
EXCLUDE_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect="NoExecute")
COMMAND = "moxwell.dev/disruption-command"  # on node claims that a command deletes
PLANNED_HOST = "moxwell.dev/planned-host"  # on node claims: the host that packing chose
PLANNED_SIZE = "moxwell.dev/planned-size"  # what its machine will use there
INTERRUPTED = "moxwell.dev/spot-interrupted"  # on node claims: what needs the capacity of the guest
REPLACES = "moxwell.dev/replacement-of"  # on node claims that a command creates: its id
