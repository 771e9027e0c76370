{{/* Labels that select the pods of a component. */}}
{{- define "zmqdata.selector" -}}
app.kubernetes.io/name: zmqdata
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "zmqdata.labels" -}}
{{ include "zmqdata.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Name of the dispatcher's StatefulSet and Service. */}}
{{- define "zmqdata.dispatcher" -}}
{{ .Release.Name }}-dispatcher
{{- end }}

{{/* Name of the workers' Deployment. */}}
{{- define "zmqdata.worker" -}}
{{ .Release.Name }}-worker
{{- end }}

{{/* Fields of a pod that both components share: rights, scheduling, and the key's volume. */}}
{{- define "zmqdata.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds | int64 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .root.Values.securityContext.runAsUser | int64 }}
  runAsGroup: {{ .root.Values.securityContext.runAsGroup | int64 }}
  fsGroup: {{ .root.Values.securityContext.runAsGroup | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Fields of a container that both components share: image, rights and resources. */}}
{{- define "zmqdata.container" -}}
image: {{ .root.Values.image | quote }}
imagePullPolicy: {{ .root.Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .values.resources | nindent 2 }}
{{- end }}

{{/* Variables that say where the key is, or that no key is used. */}}
{{- define "zmqdata.key.env" -}}
{{- if .root.Values.insecure -}}
- {name: ZMQDATA_INSECURE, value: "true"}
{{- else -}}
- {name: ZMQDATA_KEY_FILE, value: /etc/zmqdata/cluster.key}
{{- end }}
{{- end }}

{{- define "zmqdata.key.mount" -}}
{{- if not .root.Values.insecure -}}
- {name: key, mountPath: /etc/zmqdata, readOnly: true}
{{- end }}
{{- end }}

{{/* A server without its key ends with the remedy in its log. The volume is optional, or the
pod would wait for the Secret without a log. */}}
{{- define "zmqdata.key.volume" -}}
{{- if not .root.Values.insecure -}}
- name: key
  secret:
    secretName: {{ .root.Values.key.secretName | quote }}
    optional: true
    defaultMode: 0440
    items: [{key: {{ .file | quote }}, path: cluster.key}]
{{- end }}
{{- end }}

{{/* Bytes of a quantity, such as 2Gi or 1500MiB. */}}
{{- define "zmqdata.bytes" -}}
{{- $text := trimSuffix "B" (kindIs "string" . | ternary . (int64 . | toString)) -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%q is no quantity of bytes. Write it as 2Gi, 1500MiB or 2000000000." $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $units $unit) | int64 -}}
{{- end }}
