{{/*
The name of all objects, to which those of a component add theirs. It has at most 40 characters: Kubernetes labels the
stores' pods with the name of their StatefulSet and a hash of 11 characters, which may have 63, and the hostnames of
pods and the names of Services have a suffix, too. A longer name is cut, and ends with a hash of the whole: names that
begin alike stay apart.
*/}}
{{- define "freshet.name" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := printf "%s-%s" .Release.Name $chart -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains $chart .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s can name no Service, which takes a lower-case letter, then letters, digits and dashes: set fullnameOverride" $name) -}}
{{- end -}}
{{- if gt (len $name) 40 -}}
{{- $name = printf "%s-%s" ($name | trunc 31 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* The labels by which a component's pods are found. Takes [root, component]. */}}
{{- define "freshet.selector" -}}
app.kubernetes.io/name: freshet
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of an object. Takes [root, component]. */}}
{{- define "freshet.labels" -}}
{{ include "freshet.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | replace "+" "-" | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version | replace "+" "-" }}
{{- end }}

{{/* The image. There is none in a public registry, and tags allow no `+`. */}}
{{- define "freshet.image" -}}
{{ required "set image.repository to where your machines find Freshet's image, such as registry.example.com/freshet; docs/kubernetes.md says how to put it there" .Values.image.repository }}:{{ default (.Chart.AppVersion | replace "+" "-") .Values.image.tag }}
{{- end }}

{{/* Value of cluster.nodes: the stores, by the names of the headless service, which outlive a pod's address. */}}
{{- define "freshet.nodes" -}}
{{- $nodes := list -}}
{{- if eq .Values.mode "spoke" -}}
{{- range $name, $address := .Values.hub.nodes -}}
{{- $nodes = append $nodes (printf "%s=%s" $name $address) -}}
{{- end -}}
{{- else -}}
{{- $store := printf "%s-store" (include "freshet.name" .) -}}
{{- range until (int .Values.stores.replicas) -}}
{{- $nodes = append $nodes (printf "%s-%d=%s-%d.%s.%s.svc:7126" $store . $store . $store $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- join "," $nodes -}}
{{- end }}

{{/* Refuses values that fit the schema, and not each other. */}}
{{- define "freshet.check" -}}
{{- with .Values.collectors -}}
{{- if and .enabled .socketDir (hasPrefix (printf "%s/" (trimSuffix "/" .socketDir)) (printf "%s/" .outboxDir)) -}}
{{- fail "collectors.outboxDir: is in collectors.socketDir, which pods may mount; give it a directory of its own" -}}
{{- end -}}
{{- if and (eq $.Values.mode "spoke") (not .enabled) (not $.Values.gateways.enabled) -}}
{{- fail "mode: a spoke without collectors.enabled and gateways.enabled has no pods" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What a component's freshet.yaml has. Takes [root, the component's values]. */}}
{{- define "freshet.config" -}}
{{- $all := mergeOverwrite (deepCopy (index . 0).Values.config) (index . 1).config -}}
{{- with $all.http -}}
{{- if .web_config -}}
{{- fail "config.http.web_config: the pods' probes speak plain HTTP; leave it out: an ingress can have TLS, and access.secretName has tokens" -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}

{{/* Fields of each pod. Takes [root, component, the component's values]. */}}
{{- define "freshet.pod" -}}
{{- $root := index . 0 -}}
{{- $of := index . 2 -}}
# No pod calls the API of Kubernetes.
automountServiceAccountToken: false
{{- if and (eq (index . 1) "collector") $root.Values.collectors.originDetection.enabled }}
serviceAccountName: {{ include "freshet.name" $root }}-collector
{{- else }}
serviceAccountName: {{ include "freshet.name" $root }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
# Enough for 65532, the image's user, which is not root; its group owns the volumes.
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
  {{- with $of.seLinuxOptions }}
  seLinuxOptions: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Metadata of each pod. A change of its settings replaces it. Takes [root, component, the component's values]. */}}
{{- define "freshet.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $of := index . 2 -}}
labels: {{- include "freshet.labels" (list $root (index . 1)) | nindent 2 }}
annotations:
  checksum/config: {{ include "freshet.config" (list $root $of) | sha256sum }}
  {{- with $of.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Fields of each container of Freshet. Takes [root, the component's values]. */}}
{{- define "freshet.container" -}}
{{- $root := index . 0 -}}
image: {{ include "freshet.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [/usr/bin/freshet, serve]
# Freshet needs no capability: its ports are above 1024. It writes only to its volumes.
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
# A start may read a log for long: the process answers this meanwhile.
livenessProbe:
  httpGet: {path: /-/healthy, port: http}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /-/ready, port: http}
  periodSeconds: 3
  timeoutSeconds: 2
  failureThreshold: 1
resources: {{- toYaml (index . 1).resources | nindent 2 }}
{{- end }}

{{/* Variables of each container. They come before freshet.yaml. Takes [root, role, the component's values]. */}}
{{- define "freshet.env" -}}
{{- $root := index . 0 -}}
{{- $of := index . 2 -}}
- {name: FRESHET_CONFIG, value: /etc/freshet/freshet.yaml}
- {name: FRESHET_ROLE, value: {{ index . 1 }}}
- {name: FRESHET_DATA_DIR, value: /data}
- {name: FRESHET_HTTP_LISTEN, value: ":7125"}
# Sidecars and port-forwards come from loopback, too: operators use operator.sock (kubectl exec) or a token.
- {name: FRESHET_HTTP_OPERATOR_LOOPBACK, value: "false"}
{{- if $of.shutdownDelay }}
- {name: FRESHET_HTTP_SHUTDOWN_DELAY, value: {{ $of.shutdownDelay }}}
{{- end }}
{{- if and $root.Values.access.secretName (has (index . 1) (list "store" "all")) }}
{{- if $root.Values.access.tenants }}
- {name: FRESHET_HTTP_TENANTS_FILE, value: /etc/freshet-access/tenants.yaml}
{{- end }}
{{- if $root.Values.access.operators }}
- {name: FRESHET_HTTP_OPERATORS_FILE, value: /etc/freshet-access/operators.yaml}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables of a process that knows the stores. Takes [root, the key of its secret]. */}}
{{- define "freshet.clusterEnv" -}}
- {name: FRESHET_CLUSTER_NODES, value: {{ include "freshet.nodes" (index . 0) | quote }}}
- {name: FRESHET_CLUSTER_SECRET_FILE, value: /etc/freshet-secret/{{ index . 1 }}}
{{- end }}

{{/* Mounts of each container. Takes [root, role, the component's values]. */}}
{{- define "freshet.mounts" -}}
{{- $root := index . 0 -}}
- {name: data, mountPath: /data}
- {name: config, mountPath: /etc/freshet, readOnly: true}
{{- if ne (index . 1) "all" }}
- {name: secret, mountPath: /etc/freshet-secret, readOnly: true}
{{- end }}
{{- if and $root.Values.access.secretName (has (index . 1) (list "store" "all")) }}
- {name: access, mountPath: /etc/freshet-access, readOnly: true}
{{- end }}
{{- with (index . 2).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Volumes of each pod but its data. Takes [root, component, role, the component's values]. */}}
{{- define "freshet.volumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap:
    name: {{ include "freshet.name" $root }}-{{ index . 1 }}
{{- if ne (index . 2) "all" }}
# The group may read it, and the user is in that group. Stores have the cluster's secret, and the other pods the one
# that is good for pushing alone.
- name: secret
  secret:
    secretName: {{ $root.Values.secretName }}
    defaultMode: 0440
    items:
      {{- if eq (index . 2) "store" }}
      - {key: cluster-secret, path: cluster-secret}
      {{- else }}
      - {key: push-secret, path: push-secret}
      {{- end }}
{{- end }}
{{- if and $root.Values.access.secretName (has (index . 2) (list "store" "all")) }}
- name: access
  secret:
    secretName: {{ $root.Values.access.secretName }}
    defaultMode: 0440
{{- end }}
{{- with (index . 3).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volume claim of a component with data. Takes [root, the component's values]. */}}
{{- define "freshet.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: data
  spec:
    accessModes: [ReadWriteOnce]
    {{- with (index . 1).storage.className }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ (index . 1).storage.size }}
{{- end }}
