{{- define "nsq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "nsq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "nsq.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "nsq.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which selectors find the pods of a component: (list $ "broker"). */}}
{{- define "nsq.selector" -}}
app.kubernetes.io/name: {{ include "nsq.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "nsq.labels" -}}
{{- $root := index . 0 -}}
{{ include "nsq.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* (list $ "broker"): the image with its tag. */}}
{{- define "nsq.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}

{{- define "nsq.pullSecrets" -}}
{{- with .Values.images.pullSecrets -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "nsq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "nsq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* (dict with nodeSelector, tolerations and affinity): where pods may run. */}}
{{- define "nsq.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (list $ 4161): the addresses of all registries, separated by commas. */}}
{{- define "nsq.registries" -}}
{{- $root := index . 0 -}}
{{- $port := index . 1 -}}
{{- $name := printf "%s-registry" (include "nsq.fullname" $root) -}}
{{- $addresses := list -}}
{{- range until (int $root.Values.registry.replicas) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc.%s:%v" $name . $name $root.Release.Namespace $root.Values.clusterDomain $port) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{- define "nsq.secretName" -}}
{{- default (printf "%s-platform" (include "nsq.fullname" .)) .Values.platform.existingSecret -}}
{{- end -}}

{{- define "nsq.claimName" -}}
{{- default (printf "%s-platform" (include "nsq.fullname" .)) .Values.platform.storage.existingClaim -}}
{{- end -}}

{{/* Environment of each of the platform's processes. */}}
{{- define "nsq.platformEnvironment" -}}
- name: NSQLOOKUPD_HTTP_ADDRESSES
  value: {{ include "nsq.registries" (list . 4161) | quote }}
- name: NSQ_HOME
  value: /tmp/home
- name: NSQ_ARCHIVE
  value: {{ default "/srv/shared/archive" .Values.platform.archive | quote }}
- name: NSQ_REPORTS
  value: {{ default "/srv/shared/reports" .Values.platform.reports | quote }}
- name: NSQ_HISTORY
  value: /srv/shared/history
- name: NSQ_ALLOWED_HOSTS
  value: {{ .Values.platform.allowedHosts | quote }}
- name: NSQ_SITE
  value: {{ .Values.platform.site | quote }}
- name: NSQ_HTTPS
  value: {{ ternary "1" "0" .Values.platform.https | quote }}
{{- range $name, $value := .Values.platform.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "nsq.platformEnvironmentFrom" -}}
- secretRef:
    name: {{ include "nsq.secretName" . }}
{{- with .Values.platform.envSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- end -}}

{{/*
A pod of the platform. A dict with root, component, args, resources; and, if there are any, port, env, mounts, volumes,
account.
*/}}
{{- define "nsq.platformPod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "nsq.labels" (list $root .component) | nindent 4 }}
  annotations:
    checksum/secret: {{ include (print $root.Template.BasePath "/platform-secret.yaml") $root | sha256sum }}
spec:
  {{- with include "nsq.pullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ not (empty .account) }}
  # Services of other releases in the namespace must not set variables such as NSQ_REGISTRY_PORT.
  enableServiceLinks: false
  terminationGracePeriodSeconds: 30
  securityContext:
    {{- include "nsq.podSecurity" $root | nindent 4 }}
  initContainers:
    # It fails, and is started again, until the Job has prepared the database.
    - name: database
      image: {{ include "nsq.image" (list $root "platform") }}
      imagePullPolicy: {{ $root.Values.images.platform.pullPolicy }}
      args: [django-admin, migrate, --check, --settings=nsqplatform.console.settings]
      securityContext:
        {{- include "nsq.containerSecurity" $root | nindent 8 }}
      env:
        {{- include "nsq.platformEnvironment" $root | nindent 8 }}
      envFrom:
        {{- include "nsq.platformEnvironmentFrom" $root | nindent 8 }}
      resources:
        requests: {cpu: 50m, memory: 128Mi}
        limits: {memory: 512Mi}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: shared, mountPath: /srv/shared}
  containers:
    - name: {{ .component }}
      image: {{ include "nsq.image" (list $root "platform") }}
      imagePullPolicy: {{ $root.Values.images.platform.pullPolicy }}
      args: {{ toJson .args }}
      securityContext:
        {{- include "nsq.containerSecurity" $root | nindent 8 }}
      env:
        {{- include "nsq.platformEnvironment" $root | nindent 8 }}
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      envFrom:
        {{- include "nsq.platformEnvironmentFrom" $root | nindent 8 }}
      {{- if .port }}
      ports:
        - {name: http, containerPort: {{ .port }}}
      # A Host header that NSQ_ALLOWED_HOSTS need not have.
      startupProbe:
        httpGet: {path: /ping, port: http, httpHeaders: [{name: Host, value: localhost}]}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /ping, port: http, httpHeaders: [{name: Host, value: localhost}]}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /ping, port: http, httpHeaders: [{name: Host, value: localhost}]}
        periodSeconds: 5
        timeoutSeconds: 5
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: shared, mountPath: /srv/shared}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    - name: shared
      persistentVolumeClaim:
        claimName: {{ include "nsq.claimName" $root }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "nsq.placement" $root.Values.platform }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
