package helm

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// document is one object of a rendered chart.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`

	text []byte
}

// kinds has a new object of each kind that the chart may have.
var kinds = map[string]func() any{
	"v1 ConfigMap":                             func() any { return &core.ConfigMap{} },
	"v1 Service":                               func() any { return &core.Service{} },
	"v1 ServiceAccount":                        func() any { return &core.ServiceAccount{} },
	"apps/v1 StatefulSet":                      func() any { return &apps.StatefulSet{} },
	"apps/v1 Deployment":                       func() any { return &apps.Deployment{} },
	"apps/v1 DaemonSet":                        func() any { return &apps.DaemonSet{} },
	"rbac.authorization.k8s.io/v1 ClusterRole": func() any { return &rbac.ClusterRole{} },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() any { return &rbac.ClusterRoleBinding{} },
	"policy/v1 PodDisruptionBudget":                   func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":              func() any { return &networking.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor":         func() any { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule":         func() any { return &monitoring.PrometheusRule{} },
}

// object decodes the document into its type. A field that the type does not have is an error.
func (d *document) object() (any, error) {
	make, known := kinds[d.APIVersion+" "+d.Kind]
	if !known {
		return nil, errUnknownKind
	}
	object := make()
	return object, yaml.UnmarshalStrict(d.text, object)
}

// objects returns the objects of one type of a set of values.
func objects[T any](t *testing.T, set string) (all []*T) {
	t.Helper()
	text, err := render(loadChart(t), readValues(t, set))
	check(t, err)
	for _, d := range documents(t, text) {
		object, err := d.object()
		check(t, err)
		if o, is := object.(*T); is {
			all = append(all, o)
		}
	}
	return all
}

// pods returns the pods' specifications of a set of values, by the names of the objects that make them.
func pods(t *testing.T, set string) map[string]core.PodTemplateSpec {
	t.Helper()
	all := map[string]core.PodTemplateSpec{}
	for _, o := range objects[apps.StatefulSet](t, set) {
		all[o.Name] = o.Spec.Template
	}
	for _, o := range objects[apps.Deployment](t, set) {
		all[o.Name] = o.Spec.Template
	}
	for _, o := range objects[apps.DaemonSet](t, set) {
		all[o.Name] = o.Spec.Template
	}
	return all
}

// capabilities are all that a container has, by its name. The init container gives the collectors' directories to their
// user.
var capabilities = map[string][]core.Capability{"owner": {"CHOWN"}}

// No container has a right that it does not need. The manual says why one has a capability.
func TestRights(t *testing.T) {
	used := map[string]bool{}
	for _, set := range valueSets(t) {
		for name, pod := range pods(t, set) {
			spec := pod.Spec
			if s := spec.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
				s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s runs as %+v", set, name, spec.SecurityContext)
			}
			if *spec.AutomountServiceAccountToken || spec.HostNetwork || spec.HostPID || spec.HostIPC {
				t.Errorf("%s: %s has a token, or a namespace of the host", set, name)
			}
			for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
				s := c.SecurityContext
				if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Privileged != nil ||
					!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
					t.Errorf("%s: container %s of %s has the rights %+v", set, c.Name, name, s)
				}
				more, root := capabilities[c.Name]
				if !slices.Equal(s.Capabilities.Add, more) {
					t.Errorf("%s: container %s of %s has the capabilities %v, want %v", set, c.Name, name, s.Capabilities.Add, more)
				}
				if !root && (s.RunAsUser != nil || s.RunAsNonRoot != nil) {
					t.Errorf("%s: container %s of %s has the rights %+v", set, c.Name, name, s)
				}
				used[c.Name] = true
			}
		}
	}
	page, err := os.ReadFile("../../docs/kubernetes.md")
	check(t, err)
	_, rights, _ := strings.Cut(string(page), "\n## Rights\n")
	rights, _, _ = strings.Cut(rights, "\n## ")
	for container, all := range capabilities {
		if !used[container] {
			t.Errorf("no set of values has a container %s", container)
		}
		for _, c := range all {
			row := regexp.MustCompile("(?m)^\\|[^|]*`" + string(c) + "`[^|]*\\|[^|]*\\|[^|]*\\w[^|]*\\|$")
			if !row.MatchString(rights) {
				t.Errorf("the table of rights in docs/kubernetes.md does not say why a container has %s", c)
			}
		}
	}
}

// Only collectors that ask the kubelet have a right in Kubernetes: to get the list of the machine's pods.
func TestOriginDetection(t *testing.T) {
	if roles := objects[rbac.ClusterRole](t, "cluster"); len(roles) != 0 {
		t.Errorf("by default there are the roles %+v", roles)
	}
	roles, bindings := objects[rbac.ClusterRole](t, "spoke"), objects[rbac.ClusterRoleBinding](t, "spoke")
	if len(roles) != 1 || len(roles[0].Rules) != 1 || len(bindings) != 1 {
		t.Fatalf("the roles are %+v, bound by %+v", roles, bindings)
	}
	if r := roles[0].Rules[0]; !slices.Equal(r.Resources, []string{"nodes/pods"}) ||
		!slices.Equal(r.Verbs, []string{"get"}) {
		t.Errorf("the rule is %+v", r)
	}
	pod := pods(t, "spoke")["freshet-collector"].Spec
	var sources []core.VolumeProjection
	for _, v := range pod.Volumes {
		if v.Name == "token" {
			sources = v.Projected.Sources
		}
	}
	if len(sources) != 2 || sources[1].ConfigMap == nil || sources[1].ConfigMap.Name != "kube-root-ca.crt" {
		t.Errorf("the kubelet's certificate cannot be verified: the pod has the sources %+v", sources)
	}
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
		return m.Name == "cgroups" && m.ReadOnly && slices.Contains(pod.Containers[0].Env,
			core.EnvVar{Name: "FRESHET_KUBELET_CGROUP_DIR", Value: m.MountPath})
	})
	if !mounted {
		t.Errorf("the collector does not read the machine's cgroups: %+v", pod.Containers[0])
	}
	for _, v := range pods(t, "cluster")["freshet-collector"].Spec.Volumes {
		if v.Name == "cgroups" {
			t.Errorf("by default the collector mounts %+v", v)
		}
	}
	if b := bindings[0]; b.RoleRef.Name != roles[0].Name || len(b.Subjects) != 1 ||
		b.Subjects[0].Name != pod.ServiceAccountName || b.Subjects[0].Namespace != namespace {
		t.Errorf("%s is bound by %+v, but the collector is %s", roles[0].Name, b, pod.ServiceAccountName)
	}
}

// Each mount has its volume, and each volume from a ConfigMap has its ConfigMap.
func TestVolumes(t *testing.T) {
	for _, set := range valueSets(t) {
		maps := map[string]bool{}
		for _, m := range objects[core.ConfigMap](t, set) {
			maps[m.Name] = true
		}
		claimed := map[string]bool{}
		for _, o := range objects[apps.StatefulSet](t, set) {
			claimed[o.Name] = len(o.Spec.VolumeClaimTemplates) == 1 && o.Spec.VolumeClaimTemplates[0].Name == "data"
		}
		for name, pod := range pods(t, set) {
			volumes := map[string]bool{"data": claimed[name]}
			for _, v := range pod.Spec.Volumes {
				volumes[v.Name] = true
				if v.ConfigMap != nil && !maps[v.ConfigMap.Name] {
					t.Errorf("%s: %s mounts the ConfigMap %s, which is missing", set, name, v.ConfigMap.Name)
				}
			}
			for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
				for _, m := range c.VolumeMounts {
					if !volumes[m.Name] {
						t.Errorf("%s: container %s of %s mounts %s, which is no volume", set, c.Name, name, m.Name)
					}
				}
			}
		}
	}
}

// Where requests need tokens, the Prometheus operator has one: without it, it would not see the stores.
func TestScrapesHaveAToken(t *testing.T) {
	for set, want := range map[string]bool{"monitoring": false, "single-closed": true} {
		monitors := objects[monitoring.ServiceMonitor](t, set)
		if len(monitors) != 1 {
			t.Fatalf("%s has %d ServiceMonitors", set, len(monitors))
		}
		a := monitors[0].Spec.Endpoints[0].Authorization
		if (a != nil) != want || want && (a.Credentials == nil || a.Credentials.Name == "" || a.Credentials.Key == "") {
			t.Errorf("%s: the authorization is %+v", set, a)
		}
	}
}

// Hooks refer to no variables: Kubernetes replaces references in a container's own command and its variables alone.
func TestHooks(t *testing.T) {
	seen := 0
	for _, set := range valueSets(t) {
		for name, pod := range pods(t, set) {
			for _, c := range pod.Spec.Containers {
				if c.Lifecycle == nil {
					continue
				}
				seen++
				if command := c.Lifecycle.PreStop.Exec.Command; strings.Contains(strings.Join(command, " "), "$(") {
					t.Errorf("%s: the hook of %s is %q, and nobody replaces the variable", set, name, command)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no set of values has a hook")
	}
}

// A spoke reaches each store at the Service of the store, under its own address: with another traffic policy, it would
// have the address of a machine, which policies do not admit. Plain HTTP leaves this Kubernetes only if asked for.
func TestExternalStores(t *testing.T) {
	for set, ports := range map[string][]string{"monitoring": {"nodes", "http"}, "tenants": {"nodes"}} {
		found := 0
		for _, s := range objects[core.Service](t, set) {
			if s.Spec.Type != core.ServiceTypeLoadBalancer {
				continue
			}
			found++
			if s.Spec.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal {
				t.Errorf("%s: the Service %s has the traffic policy %q", set, s.Name, s.Spec.ExternalTrafficPolicy)
			}
			var got []string
			for _, p := range s.Spec.Ports {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, ports) {
				t.Errorf("%s: the Service %s has the ports %q, want %q", set, s.Name, got, ports)
			}
		}
		if found < 3 {
			t.Errorf("%s: %d stores have a Service of their own", set, found)
		}
	}
}

// The labels of each Service, budget and policy fit the pods of exactly one component, and each port of a Service is
// one of its pods.
func TestSelectors(t *testing.T) {
	for _, set := range valueSets(t) {
		all := pods(t, set)
		fits := func(selector map[string]string) (found []string) {
			for name, pod := range all {
				matches := true
				for k, v := range selector {
					matches = matches && (pod.Labels[k] == v || k == apps.StatefulSetPodNameLabel)
				}
				if matches {
					found = append(found, name)
				}
			}
			return found
		}
		for _, s := range objects[core.Service](t, set) {
			found := fits(s.Spec.Selector)
			if len(found) != 1 {
				t.Errorf("%s: the Service %s has the pods of %v", set, s.Name, found)
				continue
			}
			for _, p := range s.Spec.Ports {
				if !slices.ContainsFunc(all[found[0]].Spec.Containers[0].Ports, func(c core.ContainerPort) bool {
					return c.Name == p.TargetPort.StrVal
				}) {
					t.Errorf("%s: no container of the Service %s has the port %s", set, s.Name, p.TargetPort.StrVal)
				}
			}
		}
		budgets := objects[policy.PodDisruptionBudget](t, set)
		if _, gateways := all["freshet-gateway"]; gateways && len(budgets) < 2 {
			t.Errorf("%s: only %d budgets", set, len(budgets))
		}
		for _, b := range budgets {
			if found := fits(b.Spec.Selector.MatchLabels); len(found) != 1 || b.Spec.MaxUnavailable.IntVal != 1 {
				t.Errorf("%s: the budget %s is %v for the pods of %v", set, b.Name, b.Spec.MaxUnavailable, found)
			}
		}
		for _, p := range objects[networking.NetworkPolicy](t, set) {
			if found := fits(p.Spec.PodSelector.MatchLabels); len(found) != 1 {
				t.Errorf("%s: the policy %s is for the pods of %v", set, p.Name, found)
			}
		}
	}
}

// The stores of a hub find each other before they are ready, start at once, and are apart.
func TestStores(t *testing.T) {
	set := objects[apps.StatefulSet](t, "cluster")
	if len(set) != 1 || *set[0].Spec.Replicas != 3 || set[0].Spec.PodManagementPolicy != apps.ParallelPodManagement {
		t.Fatalf("the stores are %+v", set)
	}
	stores := set[0]
	for _, s := range objects[core.Service](t, "cluster") {
		if s.Name == stores.Spec.ServiceName && (s.Spec.ClusterIP != core.ClusterIPNone || !s.Spec.PublishNotReadyAddresses) {
			t.Errorf("the Service %s has the address %q, and publishes pods that are not ready: %v", s.Name,
				s.Spec.ClusterIP, s.Spec.PublishNotReadyAddresses)
		}
	}
	apart := stores.Spec.Template.Spec.Affinity.PodAntiAffinity
	if hosts := apart.RequiredDuringSchedulingIgnoredDuringExecution; len(hosts) != 1 ||
		hosts[0].TopologyKey != core.LabelHostname {
		t.Errorf("two stores may share a machine: %+v", hosts)
	}
	if zones := apart.PreferredDuringSchedulingIgnoredDuringExecution; len(zones) != 1 ||
		zones[0].PodAffinityTerm.TopologyKey != core.LabelTopologyZone {
		t.Errorf("the stores are not spread over zones: %+v", zones)
	}
}

// The chart has Freshet's alerts, as go generate ./deploy/monitoring writes them.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../alerts.yaml")
	check(t, err)
	var want monitoring.PrometheusRuleSpec
	check(t, yaml.UnmarshalStrict(text, &want))
	rules := objects[monitoring.PrometheusRule](t, "monitoring")
	if len(rules) != 1 {
		t.Fatalf("there are %d PrometheusRules", len(rules))
	}
	got, err := yaml.Marshal(rules[0].Spec)
	check(t, err)
	if w, err := yaml.Marshal(want); err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(string(w)) {
		t.Errorf("the alerts of the chart differ from deploy/alerts.yaml: run go generate ./deploy/monitoring")
	}
}
