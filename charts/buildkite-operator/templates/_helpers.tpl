{{- define "buildkite-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "buildkite-operator.fullname" -}}
{{- $name := include "buildkite-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "buildkite-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "buildkite-operator.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Where BuildJobs and their pods are. */ -}}
{{- define "buildkite-operator.jobNamespace" -}}
{{- .Values.config.job_namespace | default .Release.Namespace }}
{{- end }}

{{- /* The namespace of an object that may be outside of the release's own. */ -}}
{{- define "buildkite-operator.inJobNamespace" -}}
{{- if ne (include "buildkite-operator.jobNamespace" .) .Release.Namespace }}
  namespace: {{ include "buildkite-operator.jobNamespace" . }}
{{- end }}
{{- end }}

{{- define "buildkite-operator.agentTokenSecret" -}}
{{- (.Values.config.pod_config | default dict).agentTokenSecret | default "buildkite-agent-token" }}
{{- end }}

{{- define "buildkite-operator.apiTokenSecret" -}}
{{- (.Values.config.job_spawner_config | default dict).apiTokenSecret | default "buildkite-api-token" }}
{{- end }}

{{- define "buildkite-operator.queues" -}}
{{- $spawner := .Values.config.job_spawner_config | default dict }}
{{- if $spawner.queues }}
{{- $keys := list }}
{{- range $spawner.queues }}{{ $keys = append $keys .key }}{{ end }}
{{- join ", " $keys }}
{{- else }}
{{- $spawner.queue | default "bk-operator" }}
{{- end }}
{{- end }}

{{- define "buildkite-operator.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "buildkite-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "buildkite-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "buildkite-operator.labels" -}}
{{ include "buildkite-operator.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of the Secret with the webhooks' certificate, and of what is the cluster's: other namespaces may have a release of the same name. */ -}}
{{- define "buildkite-operator.webhook.fullname" -}}
{{- printf "%s-%s" .Release.Namespace (include "buildkite-operator.fullname" .) }}
{{- end }}

{{- define "buildkite-operator.webhook.service" -}}
{{- printf "%s-webhook" (include "buildkite-operator.fullname" .) }}
{{- end }}

{{- /* Whether there is a broker. Values that are kept from a chart that had none do not name it. */ -}}
{{- define "buildkite-operator.broker.enabled" -}}
{{- if (.Values.broker).enabled }}true{{ end }}
{{- end }}

{{- /* Of the broker's Service, Secrets and Roles. */ -}}
{{- define "buildkite-operator.broker.fullname" -}}
{{- printf "%s-broker" (include "buildkite-operator.fullname" .) }}
{{- end }}

{{- /* Of the broker's Service. Values that are kept from a chart that had none may not have one. */ -}}
{{- define "buildkite-operator.broker.port" -}}
{{- int (.Values.broker.port | default 8444) }}
{{- end }}

{{- /* Where agents in job pods find the broker, also from another namespace. */ -}}
{{- define "buildkite-operator.broker.url" -}}
{{- $scheme := ternary "http" "https" (eq (toString .Values.broker.tls) "false") }}
{{- printf "%s://%s.%s.svc:%s/v3" $scheme (include "buildkite-operator.broker.fullname" .) .Release.Namespace (include "buildkite-operator.broker.port" .) }}
{{- end }}

{{- define "buildkite-operator.syncer.fullname" -}}
{{- printf "%s-repo-syncer" (include "buildkite-operator.fullname" .) }}
{{- end }}

{{- define "buildkite-operator.syncer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "buildkite-operator.name" . }}-repo-syncer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "buildkite-operator.syncer.labels" -}}
{{ include "buildkite-operator.syncer.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
