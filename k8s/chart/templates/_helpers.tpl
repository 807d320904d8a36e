{{- define "dl2.labels" -}}
app.kubernetes.io/name: dl2
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "dl2.pod" }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- define "dl2.container" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- /* Refuses a release that would keep jobs which another one keeps: their operators would undo each other's work. Where no
       cluster is asked, as by helm template, none is seen. */}}
{{- define "dl2.alone" }}
{{- $me := printf "dl2-operator-%s" .Release.Namespace }}
{{- $roles := (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items }}
{{- range .Values.namespaces }}
{{- $roles = concat ($roles | default list) ((lookup "rbac.authorization.k8s.io/v1" "Role" . "").items | default list) }}
{{- end }}
{{- range $roles }}
{{- $writes := contains "elasticjobs/status" (toJson .rules) }}
{{- if and (hasPrefix "dl2-operator-" .metadata.name) (ne $me .metadata.name) (or $writes (not $.Values.namespaces)) }}
{{- $other := trimPrefix "dl2-operator-" .metadata.name }}
{{- fail (printf "the release in the namespace %s keeps jobs that this one would keep: give each of them namespaces of its own" $other) }}
{{- end }}
{{- end }}
{{- end }}
