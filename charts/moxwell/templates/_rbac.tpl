{{/* Rules of each program; tests run the programs with them. */}}
{{- define "moxwell.operatorClusterRules" }}
{{- $ours := "proxmoxclusters, proxmoxclustertemplates, proxmoxmachines, proxmoxmachinetemplates" }}
- {apiGroups: [events.k8s.io, ""], resources: [events], verbs: [create, patch]}
- {apiGroups: [""], resources: [secrets], verbs: [get, patch]}  # bootstrap data and credentials, by name
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [moxwell-validating-webhook-configuration]
  verbs: [get, patch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - proxmoxclusters.infrastructure.cluster.x-k8s.io
    - proxmoxclustertemplates.infrastructure.cluster.x-k8s.io
    - proxmoxmachines.infrastructure.cluster.x-k8s.io
    - proxmoxmachinetemplates.infrastructure.cluster.x-k8s.io
  verbs: [get, patch]
{{- if .Values.operator.infra }}
- {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [{{ $ours }}], verbs: [get, list, watch, patch, update]}
- {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [proxmoxmachines], verbs: [claim]}  # checked by the policy moxwell-claims
- apiGroups: [infrastructure.cluster.x-k8s.io]
  resources: [proxmoxclusters/status, proxmoxclustertemplates/status, proxmoxmachines/status, proxmoxmachinetemplates/status]
  verbs: [get, patch, update]
- apiGroups: [infrastructure.cluster.x-k8s.io]
  resources: [proxmoxclusters/finalizers, proxmoxclustertemplates/finalizers, proxmoxmachines/finalizers, proxmoxmachinetemplates/finalizers]
  verbs: [update]
- {apiGroups: [karpenter.proxmox.sinextra.dev], resources: [proxmoxtemplates], verbs: [get, list, watch, patch, update]}
- {apiGroups: [karpenter.proxmox.sinextra.dev], resources: [proxmoxtemplates/status], verbs: [get, patch, update]}
- {apiGroups: [karpenter.proxmox.sinextra.dev], resources: [proxmoxtemplates/finalizers], verbs: [update]}
- {apiGroups: [gateway.networking.k8s.io], resources: [referencegrants], verbs: [list]}
- {apiGroups: [cluster.x-k8s.io], resources: [clusters, machines], verbs: [get, list, watch]}
- {apiGroups: [ipam.cluster.x-k8s.io], resources: [ipaddressclaims, inclusterippools], verbs: [get, list, watch, create, delete, patch]}
- {apiGroups: [ipam.cluster.x-k8s.io], resources: [ipaddresses, globalinclusterippools], verbs: [get, list, watch]}
{{- end }}
{{- if .Values.operator.karpenter }}
# The autoscaler: what it watches, the nodes and pods that it ends, Karpenter's objects.
- {apiGroups: [""], resources: [namespaces, persistentvolumes, persistentvolumeclaims], verbs: [get, list, watch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses, csinodes, volumeattachments], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [daemonsets], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [deployments, statefulsets, replicasets], verbs: [get, list, watch]}  # templates of capacity buffers
- {apiGroups: [""], resources: [podtemplates], verbs: [get, list, watch]}
- {apiGroups: [autoscaling.x-k8s.io], resources: [capacitybuffers], verbs: [get, list, watch]}
- {apiGroups: [autoscaling.x-k8s.io], resources: [capacitybuffers/status], verbs: [get, patch, update]}
- {apiGroups: [karpenter.sh], resources: [nodeoverlays], verbs: [get, list, watch]}
- {apiGroups: [karpenter.sh], resources: [nodeoverlays/status], verbs: [get, patch, update]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch, delete]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, delete]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
# Kubelet certificates of nodes that join with a token of the autoscaler.
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [get, list, watch]}
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests/approval], verbs: [patch, update]}
- {apiGroups: [certificates.k8s.io], resources: [signers], resourceNames: [kubernetes.io/kube-apiserver-client-kubelet], verbs: [approve]}
- {apiGroups: [karpenter.sh], resources: [nodepools], verbs: [get, list, watch, patch]}
- {apiGroups: [karpenter.sh], resources: [nodeclaims], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [karpenter.sh], resources: [nodepools/status, nodeclaims/status], verbs: [get, patch, update]}
- {apiGroups: [karpenter.sh], resources: [nodepools/finalizers, nodeclaims/finalizers], verbs: [update]}
- {apiGroups: [karpenter.proxmox.sinextra.dev], resources: [proxmoxnodeclasses], verbs: [get, list, watch, patch]}
- {apiGroups: [karpenter.proxmox.sinextra.dev], resources: [proxmoxunmanagedtemplates], verbs: [get, list, watch]}
- apiGroups: [karpenter.proxmox.sinextra.dev]
  resources: [proxmoxnodeclasses/status, proxmoxunmanagedtemplates/status]
  verbs: [get, patch, update]
{{- end }}
{{- if .Values.operator.tenancy }}
# Tenants: namespaces, quotas and roles. The Roles grant nothing that is not granted here, so no `escalate` is needed.
- {apiGroups: [apps.cozystack.io], resources: [kuberneteses, tenants], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [apps.cozystack.io], resources: [kuberneteses/status, tenants/status], verbs: [get, patch, update]}
- {apiGroups: [apps.cozystack.io], resources: [kuberneteses/finalizers, tenants/finalizers], verbs: [update]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [resourcequotas], verbs: [get, create, patch]}
- {apiGroups: [""], resources: [secrets], verbs: [get, create, patch]}  # Proxmox tokens of tenants
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [get, create, patch]}
# Clusters of tenants.
- apiGroups: [cluster.x-k8s.io]
  resources: [clusters, machinedeployments, machinehealthchecks]
  verbs: [get, list, watch, create, patch, delete]
- {apiGroups: [cluster.x-k8s.io], resources: [machines, machinesets], verbs: [get, list, watch]}
- {apiGroups: [controlplane.cluster.x-k8s.io], resources: [kamajicontrolplanes], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [bootstrap.cluster.x-k8s.io], resources: [kubeadmconfigtemplates, talosconfigtemplates], verbs: [get, list, create, patch, delete]}
- apiGroups: [infrastructure.cluster.x-k8s.io]
  resources: [proxmoxclusters, proxmoxmachinetemplates]
  verbs: [get, list, create, patch, delete]
- {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [proxmoxmachines], verbs: [get, list, watch]}
{{- end }}
{{- end }}

{{- define "moxwell.operatorRules" }}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, delete, patch, update]}
- {apiGroups: [""], resources: [secrets], verbs: [get, create, patch, update]}  # the certificate of the webhooks
{{- end }}

{{- /* Machines of the autoscaler, in the namespace of the Cluster object. */}}
{{- define "moxwell.scaledMachineRules" }}
- {apiGroups: [cluster.x-k8s.io], resources: [machines], verbs: [create, delete]}
- {apiGroups: [cluster.x-k8s.io], resources: [machines/finalizers], verbs: [update]}  # Machines own the objects below
- {apiGroups: [bootstrap.cluster.x-k8s.io], resources: [kubeadmconfigs], verbs: [get, create]}
- {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [proxmoxmachines], verbs: [get, list, watch, create, patch, delete]}  # warm pools, adoption
- {apiGroups: [""], resources: [secrets], verbs: [create]}  # bootstrap data
{{- end }}

{{- /* Join tokens of the autoscaler's nodes, in kube-system. */}}
{{- define "moxwell.joinTokenRules" }}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, create, delete]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [kube-root-ca.crt], verbs: [get]}
{{- end }}

{{- define "moxwell.cloudClusterRules" }}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, update, patch, delete]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, update]}
- {apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [list]}  # features.force_update_labels
- {apiGroups: [""], resources: [persistentvolumes], verbs: [list]}
{{- if or (has "service" .Values.cloud.controllers) (has "cloud" .Values.cloud.controllers) }}
- {apiGroups: [""], resources: [services], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [services/status], verbs: [patch]}
{{- end }}
{{- end }}

{{- define "moxwell.cloudRules" }}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, delete, patch, update]}
{{- end }}

{{- define "moxwell.csiControllerClusterRules" }}
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, watch, update, patch]}
- {apiGroups: [""], resources: [persistentvolumeclaims/status], verbs: [patch]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}  # its UID names the tenant
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [list, watch, create, update, patch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses, csinodes, volumeattributesclasses], verbs: [get, list, watch]}
- {apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [get, list, watch, patch]}
- {apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots, volumesnapshotclasses], verbs: [get, list, watch]}
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotcontents, volumesnapshotcontents/status]
  verbs: [get, list, watch, update, patch]
{{- end }}

{{- /* Leases of the sidecars, the journal of the driver, and CSIStorageCapacity with its owner. */}}
{{- define "moxwell.csiControllerRules" }}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}
- {apiGroups: [storage.k8s.io], resources: [csistoragecapacities], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [apps], resources: [replicasets], verbs: [get]}
{{- end }}

{{- /* The node plugin reads only the topology labels of its own node. */}}
{{- define "moxwell.csiNodeClusterRules" }}
- {apiGroups: [""], resources: [nodes], verbs: [get]}
{{- end }}
