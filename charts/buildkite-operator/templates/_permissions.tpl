{{- /* Written from crates/operator/src/permissions.rs. */ -}}
{{- define "buildkite-operator.rules.own" -}}
# Its configuration.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [buildkite-operator-config]
  verbs: [get, list, watch]
# Whether this replica is the last.
- apiGroups: [apps]
  resources: [deployments]
  resourceNames: [{{ include "buildkite-operator.fullname" . }}]
  verbs: [get]
# Which replica works.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "buildkite-operator.fullname" . }}]
  verbs: [get, list, watch, update]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
# What somebody has to do something about.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "buildkite-operator.rules.jobs" -}}
- apiGroups: [buildkite-operator.dev]
  resources: [buildjobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [buildkite-operator.dev]
  resources: [buildjobs/status]
  verbs: [patch]
# What BuildJobs refer to by name.
- apiGroups: [buildkite-operator.dev]
  resources: [buildenvironments]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
# The shim, the JobSpawner's written choices, and the broker's authority.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
# The tokens, and no other Secret.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "buildkite-operator.agentTokenSecret" . }}, {{ include "buildkite-operator.apiTokenSecret" . }}]
  verbs: [get, list, watch]
# After whose UID the operator is called at Buildkite; a Role allows for its own namespace only.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
# What happens to pods beyond their status.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "buildkite-operator.rules.webhook.own" -}}
# The certificate of the webhooks, which the replicas share.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "buildkite-operator.webhook.fullname" . }}]
  verbs: [list, watch, update]
{{- end }}

{{- define "buildkite-operator.rules.webhook.jobs" -}}
# Whether there is what BuildJobs refer to.
- apiGroups: [""]
  resources: [persistentvolumeclaims, serviceaccounts]
  verbs: [get]
{{- end }}

{{- define "buildkite-operator.rules.webhook.secrets" -}}
# Whether there are the Secrets that BuildJobs refer to.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}

{{- define "buildkite-operator.rules.webhook.cluster" -}}
# Whether any node can run a job.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# Whether there is what BuildJobs refer to.
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get]
- apiGroups: [node.k8s.io]
  resources: [runtimeclasses]
  verbs: [get]
{{- end }}

{{- define "buildkite-operator.rules.webhook.configurations" -}}
# Its own webhooks, which are to trust its certificate.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  resourceNames: [{{ include "buildkite-operator.webhook.fullname" . }}]
  verbs: [list, watch, patch]
{{- end }}

{{- define "buildkite-operator.rules.broker.own" -}}
# The broker's authority, certificate and signing key, which the replicas share.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "buildkite-operator.broker.fullname" . }}]
  verbs: [list, watch, update]
# Its sessions, which they share, too.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "buildkite-operator.broker.fullname" . }}-sessions-0, {{ include "buildkite-operator.broker.fullname" . }}-sessions-1, {{ include "buildkite-operator.broker.fullname" . }}-sessions-2, {{ include "buildkite-operator.broker.fullname" . }}-sessions-3]
  verbs: [list, watch, patch]
{{- end }}

{{- define "buildkite-operator.rules.broker.jobs" -}}
# Jobs leave a node that is about to go, where `nodeLeaving` is `interrupt`.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}

{{- define "buildkite-operator.rules.broker.cluster" -}}
# Whether the node of a job is lost or about to go.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}

{{- define "buildkite-operator.rules.broker.tokenReviews" -}}
# Which pod a service account token is of.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}

{{- define "buildkite-operator.rules.syncer.own" -}}
# Its configuration.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [buildkite-operator-config]
  verbs: [get, list, watch]
{{- end }}

{{- define "buildkite-operator.rules.syncer.jobs" -}}
# It passes on requests to fetch at once, as an annotation.
- apiGroups: [buildkite-operator.dev]
  resources: [repomirrors]
  verbs: [get, list, watch, patch]
- apiGroups: [buildkite-operator.dev]
  resources: [repomirrors/status]
  verbs: [patch]
{{- end }}

{{- define "buildkite-operator.rules.syncer.secrets" -}}
# The Secrets that RepoMirrors and the endpoint name: add yours.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ join ", " .Values.repoSyncer.secrets }}]
  verbs: [get]
{{- end }}
