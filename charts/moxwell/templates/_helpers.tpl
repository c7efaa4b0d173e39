{{/* The image, by digest if one is given, else by version. */}}
{{- define "moxwell.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest }}{{ $i.repository }}@{{ $i.digest }}{{ else }}{{ $i.repository }}:{{ $i.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Labels of every object. */}}
{{- define "moxwell.labels" -}}
app.kubernetes.io/name: moxwell
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels by which pods are selected: (list $ component). */}}
{{- define "moxwell.selector" -}}
app.kubernetes.io/name: moxwell
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Metadata of a pod template: (list $ component values port). */}}
{{- define "moxwell.podMetadata" -}}
{{- $root := index . 0 -}}{{- $v := index . 2 -}}
labels:
  {{- include "moxwell.selector" (list $root (index . 1)) | nindent 2 }}
  {{- with $v.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ index . 3 | toString | quote }}
  {{- if eq (index . 1) "cloud" }}
  prometheus.io/scheme: https
  {{- end }}
  {{- with $root.Values.config }}
  checksum/config: {{ toYaml (list . $root.Values.configFiles) | sha256sum }}
  {{- end }}
  {{- with $v.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* Where a pod runs: (list $ values). */}}
{{- define "moxwell.placement" -}}
{{- $root := index . 0 -}}{{- $v := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "moxwell.podSecurity" -}}
{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "moxwell.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* The Secret with the regions; empty if there are none. */}}
{{- define "moxwell.configSecret" -}}
{{- .Values.existingConfigSecret | default (ternary "moxwell-config" "" (not (empty .Values.config))) -}}
{{- end }}

{{/* Volumes and mounts of a program that reads the regions; /tmp: OpenSSL reads keys from files only. */}}
{{- define "moxwell.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "moxwell.configSecret" . }}
- {name: config, mountPath: /etc/proxmox, readOnly: true}
{{- end }}
{{- end }}

{{- define "moxwell.volumes" -}}
- {name: tmp, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
{{- with include "moxwell.configSecret" . }}
- {name: config, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* ServiceAccount with a ClusterRole and a Role of its own: (list $ name clusterRules rules). */}}
{{- define "moxwell.account" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "moxwell.labels" $root | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- include "moxwell.labels" $root | nindent 4 }}
rules: {{- index . 2 | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "moxwell.labels" $root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}]
{{- with index . 3 }}
---
{{ include "moxwell.role" (list $root $name $name $root.Release.Namespace .) }}
{{- end }}
{{- end }}

{{/* A Role of a ServiceAccount in a namespace: (list $ account name namespace rules). */}}
{{- define "moxwell.role" -}}
{{- $root := index . 0 -}}{{- $account := index . 1 -}}{{- $name := index . 2 -}}{{- $space := index . 3 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $space }}
  labels: {{- include "moxwell.labels" $root | nindent 4 }}
rules: {{- index . 4 | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $space }}
  labels: {{- include "moxwell.labels" $root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $account }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}

{{/*
Whether a CRD belongs to this release: (list $ name). Karpenter's CRDs that exist already, as its own charts
install them, stay as they are, because Helm refuses to take them over.
*/}}
{{- define "moxwell.installsCrd" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $v := $root.Values.operator -}}
{{- if hasSuffix ".infrastructure.cluster.x-k8s.io" $name -}}
{{- if $v.infra }}yes{{ end -}}
{{- else if hasSuffix ".apps.cozystack.io" $name -}}
{{- if $v.tenancy }}yes{{ end -}}
{{- else if $v.karpenter -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name | default dict -}}
{{- $notes := dig "metadata" "annotations" dict $found -}}
{{- $release := list (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") -}}
{{- if or (not $found) (eq (join "/" $release) (printf "%s/%s" $root.Release.Namespace $root.Release.Name)) }}yes{{ end -}}
{{- end -}}
{{- end }}

{{/* The enabled parts with their metrics ports, as a list in YAML. */}}
{{- define "moxwell.parts" -}}
{{- $v := .Values -}}
{{- if $v.operator.enabled }}
- {name: operator, port: {{ $v.operator.healthPort }}, portName: health, hostNetwork: {{ $v.operator.hostNetwork }}, webhooks: true}
{{- end }}
{{- if $v.cloud.enabled }}
- {name: cloud, port: {{ $v.cloud.securePort }}, portName: health, hostNetwork: {{ $v.cloud.hostNetwork }}, tls: true}
{{- end }}
{{- if $v.csi.enabled }}
- {name: csi-controller, port: {{ $v.csi.controller.metricsPort }}, portName: metrics}
- {name: csi-node, port: {{ $v.csi.node.metricsPort }}, portName: metrics, hostNetwork: false, daemon: true}
{{- end }}
{{- end }}
