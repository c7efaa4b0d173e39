{{- define "moxwell.name" -}}
{{ .Values.cluster.name | default .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "moxwell.labels" -}}
cluster.x-k8s.io/cluster-name: {{ include "moxwell.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* cluster.version overrides the version of the control plane. */}}
{{- define "moxwell.version" -}}
{{ .Values.cluster.version | default .Values.cluster.controlPlane.version }}
{{- end }}

{{- define "moxwell.pool" -}}
{{ include "moxwell.name" . }}-ipam-ip-pool
{{- end }}

{{/* The credentials Secret; empty if the configuration of Moxwell is used. */}}
{{- define "moxwell.credentials" -}}
{{- $given := .Values.proxmox.secret }}
{{- if not $given.name }}{{ $given = .Values.cluster.credentialsRef | default dict }}{{ end }}
{{- with $given.name }}
name: {{ . }}
namespace: {{ $given.namespace | default $.Release.Namespace }}
{{- end }}
{{- end }}

{{/* A hash over the canonical JSON of a spec: layout and order do not matter. */}}
{{- define "moxwell.hash" -}}
{{ . | fromYaml | toJson | sha256sum | trunc 8 }}
{{- end }}

{{- define "moxwell.machine" -}}
{{- $root := index . 0 }}{{ $pool := index . 1 -}}
numSockets: {{ $pool.numSockets | default 1 | int }}
numCores: {{ $pool.numCores | int }}
memoryMiB: {{ $pool.memoryMiB | int }}
spread: {{ $pool.spread | default "Prefer" }}
{{- with $pool.sourceNode }}
sourceNode: {{ . }}
{{- end }}
{{- if $pool.templateId }}
templateID: {{ $pool.templateId | int }}
{{- else if (($pool.templateSelector).matchTags) }}
templateSelector:
  matchTags: {{ $pool.templateSelector.matchTags | toJson }}
{{- end }}
{{- with $pool.allowedNodes }}
allowedNodes: {{ . | toJson }}
{{- end }}
{{- with $pool.pool }}
pool: {{ . }}
{{- end }}
{{- with $pool.tags }}
tags: {{ . | toJson }}
{{- end }}
{{- if or $pool.storage $pool.format }}
full: true
{{- end }}
{{- with $pool.storage }}
storage: {{ . }}
{{- end }}
{{- with $pool.format }}
format: {{ . }}
{{- end }}
{{- with (($pool.disks).bootVolume) }}
disks:
  bootVolume:
    sizeGb: {{ .sizeGb | int }}
    {{- with .disk }}
    disk: {{ . }}
    {{- end }}
{{- end }}
network:
  networkDevices:
    - name: net0
      model: {{ ($pool.network).model | default "virtio" }}
      {{- with ($pool.network).bridge }}
      bridge: {{ . }}
      {{- end }}
      {{- with ($pool.network).vlan }}
      vlan: {{ . | int }}
      {{- end }}
      {{- with ($pool.network).dnsServers }}
      dnsServers: {{ . | toJson }}
      {{- end }}
      {{- if not $root.Values.cluster.zones }}
      {{- if and $root.Values.ipamProvider.enabled ((($pool.network).addressesFromPools).enabled) }}
      ipPoolRef:
        - apiGroup: ipam.cluster.x-k8s.io
          kind: InClusterIPPool
          name: {{ include "moxwell.pool" $root }}
      {{- else if $root.Values.ipamProvider.enabled }}
      dhcp4: true
      {{- end }}
      {{- end }}
{{- end }}

{{/* Labels of a pool as "k=v,k=v", sorted, from a map or from a kubelet flag. */}}
{{- define "moxwell.nodeLabels" -}}
{{- $all := dict "moxwell.dev/node-group" .name }}
{{- if kindIs "string" .labels }}
{{- range splitList "," .labels }}{{ if . }}{{ $kv := splitn "=" 2 (trim .) }}{{ $_ := set $all $kv._0 ($kv._1 | default "") }}{{ end }}{{ end }}
{{- else }}
{{- range $k, $v := .labels }}{{ $_ := set $all $k (toString $v) }}{{ end }}
{{- end }}
{{- $rows := list }}
{{- range $k, $v := $all }}{{ $rows = append $rows (printf "%s=%s" $k $v) }}{{ end }}
{{- join "," $rows }}
{{- end }}

{{- define "moxwell.kubeadm" -}}
{{- $root := index . 0 }}{{ $pool := index . 1 -}}
joinConfiguration:
  nodeRegistration:
    name: {{ "{{ local_hostname }}" | quote }}
    kubeletExtraArgs:
      {{- with $root.Values.cluster.cloudProvider }}
      - {name: cloud-provider, value: {{ . }}}
      {{- end }}
      - name: provider-id
        value: {{ "proxmox://{{ ds.meta_data.instance_id }}" | quote }}
      - name: node-labels
        value: {{ include "moxwell.nodeLabels" $pool | quote }}
      {{- with $pool.taints }}
      - name: register-with-taints
        value: {{ if kindIs "string" . }}{{ . | quote }}{{ else }}{{ join "," . | quote }}{{ end }}
      {{- end }}
{{- with $pool.additionalCloudInitFiles }}
files:
  - path: /etc/cloud/cloud.cfg.d/99-custom.cfg
    owner: root:root
    permissions: "0644"
    content: {{ . | quote }}
{{- end }}
{{- with $pool.users }}
users:
  {{- range . }}
  - {{ pick . "name" "shell" "lockPassword" "passwd" "sshAuthorizedKeys" "sudo" "groups" | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Names of templates that a MachineSet of this cluster still uses. */}}
{{- define "moxwell.used" -}}
{{- $names := list }}
{{- range (lookup "cluster.x-k8s.io/v1beta2" "MachineSet" .Release.Namespace "").items }}
{{- if eq .spec.clusterName (include "moxwell.name" $) }}
{{- $names = append $names .spec.template.spec.infrastructureRef.name }}
{{- with ((.spec.template.spec.bootstrap).configRef) }}{{ $names = append $names .name }}{{ end }}
{{- end }}
{{- end }}
{{- $names | toJson }}
{{- end }}
