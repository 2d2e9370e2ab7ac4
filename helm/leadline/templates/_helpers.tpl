{{- define "leadline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "leadline.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "leadline.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "leadline.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What never changes: selectors and claim templates are immutable, so no version is among these. */}}
{{- define "leadline.selector" -}}
app.kubernetes.io/name: {{ include "leadline.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "leadline.labels" -}}
{{ include "leadline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "leadline.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "leadline.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "leadline.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "leadline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "leadline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "leadline.policyConfigMap" -}}
{{- if .Values.policyExistingConfigMap -}}
{{- .Values.policyExistingConfigMap -}}
{{- else if .Values.policy -}}
{{- include "leadline.fullname" . }}-policy
{{- end -}}
{{- end }}

{{/* How a client reaches the brokers, as environment. Takes root and secret. */}}
{{- define "leadline.kafkaEnv" -}}
{{- $security := .root.Values.kafka.security -}}
{{- $tls := has $security.protocol (list "SSL" "SASL_SSL") -}}
{{- $sasl := hasPrefix "SASL_" $security.protocol -}}
- name: LEADLINE_BOOTSTRAP
  value: {{ required "kafka.bootstrap must be given: host:port of the brokers, separated by commas" .root.Values.kafka.bootstrap | quote }}
- name: LEADLINE_APP_ID
  value: {{ .root.Values.kafka.appId | quote }}
- name: LEADLINE_IDEMPOTENCE
  value: "true"
{{- if ne $security.protocol "PLAINTEXT" }}
- name: LEADLINE_SECURITY_PROTOCOL
  value: {{ $security.protocol }}
{{- end }}
{{- if and (or $sasl (and $tls (or $security.tls.ca $security.tls.clientCertificate))) (not .secret) }}
{{- fail (printf "kafka.security.existingSecret must be given: the protocol %s needs what is in it" $security.protocol) }}
{{- end }}
{{- if $tls }}
{{- if $security.tls.ca }}
- name: LEADLINE_TLS_CA_FILE
  value: /etc/leadline/kafka/ca.crt
{{- end }}
{{- if $security.tls.clientCertificate }}
- name: LEADLINE_TLS_CERT_FILE
  value: /etc/leadline/kafka/tls.crt
- name: LEADLINE_TLS_KEY_FILE
  value: /etc/leadline/kafka/tls.key
{{- end }}
{{- if not $security.tls.verifyHostname }}
- name: LEADLINE_TLS_VERIFY_HOSTNAME
  value: "false"
{{- end }}
{{- end }}
{{- if $sasl }}
- name: LEADLINE_SASL_MECHANISM
  value: {{ required "kafka.security.sasl.mechanism must be given with a SASL protocol" $security.sasl.mechanism | quote }}
{{- if $security.allowSaslWithoutTls }}
- name: LEADLINE_ALLOW_SASL_WITHOUT_TLS
  value: "true"
{{- end }}
{{- if ne $security.sasl.mechanism "OAUTHBEARER" }}
- name: LEADLINE_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: username
- name: LEADLINE_SASL_PASSWORD_FILE
  value: /etc/leadline/kafka/password
{{- else if $security.sasl.tokenUrl }}
- name: LEADLINE_SASL_TOKEN_URL
  value: {{ $security.sasl.tokenUrl | quote }}
- name: LEADLINE_SASL_CLIENT_ID
  value: {{ required "kafka.security.sasl.clientId must be given with tokenUrl" $security.sasl.clientId | quote }}
- name: LEADLINE_SASL_CLIENT_SECRET_FILE
  value: /etc/leadline/kafka/client-secret
{{- with $security.sasl.scope }}
- name: LEADLINE_SASL_SCOPE
  value: {{ . | quote }}
{{- end }}
{{- else }}
- name: LEADLINE_SASL_TOKEN_FILE
  value: /etc/leadline/kafka/token
{{- end }}
{{- end }}
{{- end }}

{{/* Mount and volume of the secret for that. Take root and secret; nothing where the protocol needs none. */}}
{{- define "leadline.kafkaMount" -}}
{{- if and .secret (ne .root.Values.kafka.security.protocol "PLAINTEXT") }}
- name: kafka
  mountPath: /etc/leadline/kafka
  readOnly: true
{{- end }}
{{- end }}

{{- define "leadline.kafkaVolume" -}}
{{- if and .secret (ne .root.Values.kafka.security.protocol "PLAINTEXT") }}
- name: kafka
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{- define "leadline.signingSecret" -}}
{{- if or .Values.signing.commands .Values.signing.events -}}
{{- required "signing.existingSecret must be given: it holds the keys" .Values.signing.existingSecret -}}
{{- end -}}
{{- end }}

{{- define "leadline.scaleDown" -}}
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownStabilizationSeconds }}
  policies:
    - type: Pods
      value: 1
      periodSeconds: 600
scaleUp:
  stabilizationWindowSeconds: 60
  policies:
    - type: Pods
      value: 2
      periodSeconds: 120
{{- end }}

{{- define "leadline.checkScale" -}}
{{- if gt (int .Values.autoscaling.maxReplicas) (int .Values.topics.partitions) -}}
{{- fail (printf "autoscaling.maxReplicas is %d, and there are %d partitions: workers beyond that have nothing to do" (int .Values.autoscaling.maxReplicas) (int .Values.topics.partitions)) -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- end }}
