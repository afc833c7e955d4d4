{{- /* .Chart.Name is the alias where a parent chart gives one: it tells several sidecars of a release apart. */ -}}
{{- define "flink-ha-sidecar.name" -}}
{{- $chart := .Chart.Name | lower | replace "_" "-" -}}
{{- $named := and (eq $chart "flink-ha-sidecar") (contains $chart .Release.Name) -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $chart) $named | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "flink-ha-sidecar.instance" -}}
{{ ternary .Release.Name (include "flink-ha-sidecar.name" .) (eq .Chart.Name "flink-ha-sidecar") }}
{{- end -}}

{{- define "flink-ha-sidecar.selector" -}}
app: flink-ha-sidecar
app.kubernetes.io/instance: {{ include "flink-ha-sidecar.instance" . }}
{{- end -}}

{{- define "flink-ha-sidecar.labels" -}}
{{ toYaml (merge (include "flink-ha-sidecar.selector" . | fromYaml) (.Values.labels | default dict)) }}
{{- end -}}

{{- define "flink-ha-sidecar.auditLabels" -}}
{{- $own := dict "app" "flink-ha-sidecar-audit" "app.kubernetes.io/instance" (include "flink-ha-sidecar.instance" .) -}}
{{ toYaml (merge $own (.Values.labels | default dict)) }}
{{- end -}}

{{- /* Of a dictionary with root and own, the labels by which the pod is found: they cannot be replaced. */ -}}
{{- define "flink-ha-sidecar.podLabels" -}}
{{ toYaml (merge (dict) .own (.root.Values.podLabels | default dict) (.root.Values.labels | default dict)) }}
{{- end -}}

{{- /* Remove the keys without a value from a dictionary: each keeps its default. */ -}}
{{- define "flink-ha-sidecar.withoutNulls" -}}
{{- $dictionary := . -}}
{{- range $key, $value := $dictionary -}}
{{- if kindIs "invalid" $value }}{{ $_ := unset $dictionary $key }}{{ end -}}
{{- if kindIs "map" $value }}{{ include "flink-ha-sidecar.withoutNulls" $value }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Of an object with these labels: name, labels, annotations. */ -}}
{{- define "flink-ha-sidecar.metadata" -}}
name: {{ include "flink-ha-sidecar.name" . }}
labels: {{- include "flink-ha-sidecar.labels" . | nindent 2 }}
{{- with .Values.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "flink-ha-sidecar.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "flink-ha-sidecar.name" .) }}
{{- end -}}

{{- define "flink-ha-sidecar.receivers" -}}
{{- if .Values.receiversSecret.values -}}
{{ include "flink-ha-sidecar.name" . }}-receivers
{{- else -}}
{{ .Values.receiversSecret.name }}
{{- end -}}
{{- end -}}

{{- define "flink-ha-sidecar.repository" -}}
{{ .Values.image.repository | default "flink-ha-sidecar" }}
{{- end -}}

{{- /* Of a dictionary with image, repository and version. */ -}}
{{- define "flink-ha-sidecar.image" -}}
{{- $repository := .image.repository | default .repository -}}
{{- if .image.digest -}}
{{ printf "%s@%s" $repository .image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository (.image.tag | default .version) }}
{{- end -}}
{{- end -}}

{{- define "flink-ha-sidecar.config" -}}
{{- $config := dict
  "observer" (include "flink-ha-sidecar.name" .)
  "state_dir" "/var/lib/flink-ha-sidecar"
  "spool" (dict "url" "file:///var/spool/flink-ha-sidecar")
  "http" (dict "host" "0.0.0.0" "port" 9250)
  "receivers" .Values.receivers
-}}
{{- $kubernetes := dict -}}
{{- if .Values.podNames }}{{ $_ := set $kubernetes "pod_names" true }}{{ end -}}
{{- if .Values.events }}{{ $_ := set $kubernetes "events" true }}{{ end -}}
{{- if .Values.plans }}{{ $_ := set $kubernetes "plans" true }}{{ end -}}
{{- if .Values.deaths }}{{ $_ := set $kubernetes "deaths" true }}{{ end -}}
{{- with $kubernetes }}{{ $_ := set $config "kubernetes" . }}{{ end -}}
{{- with .Values.externalLabels }}{{ $_ := set $config "external_labels" . }}{{ end -}}
{{- $own := deepCopy (.Values.config | default dict) -}}
{{- include "flink-ha-sidecar.withoutNulls" $own -}}
{{- toYaml (mergeOverwrite $config $own) -}}
{{- end -}}

{{- /* Of a dictionary with root, feature and rule: what a feature that is switched on may do more. */ -}}
{{- define "flink-ha-sidecar.role" -}}
{{- $name := printf "%s-%s" (include "flink-ha-sidecar.name" .root) .feature }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  {{- with .root.Values.labels }}
  labels: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  - {{ .rule }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  {{- with .root.Values.labels }}
  labels: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "flink-ha-sidecar.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "flink-ha-sidecar.securityContext" -}}
runAsNonRoot: true
{{- if not .Values.platformAssignsIds }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* Of a dictionary with name and claim. */ -}}
{{- define "flink-ha-sidecar.volume" -}}
- name: {{ .name }}
  {{- if .claim }}
  persistentVolumeClaim: {claimName: {{ .claim }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end -}}
