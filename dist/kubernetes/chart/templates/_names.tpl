{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "weft.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The nodes' own addresses in the pods' network: the first of each node's range. */ -}}
{{- define "weft.nodeAddresses" -}}
{{- $addresses := list -}}
{{- range $place, $host := .Values.hosts -}}
{{- $addresses = append $addresses (printf "%s.%d.1" $.Values.podNetwork.prefix $place) -}}
{{- end -}}
{{ join "," $addresses }}
{{- end }}
