package settings

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"
)

func nodesOf(t *testing.T, texts ...string) (all []NodeAddress) {
	t.Helper()
	for _, text := range texts {
		var a NodeAddress
		if err := a.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// A node is written as NAME=HOST:PORT. A node that is read and written again has the same text.
func TestNodeAddress(t *testing.T) {
	for _, good := range []string{"a=10.0.0.1:7126", "node-1=[::1]:7126", "b.eu=freshet.example:http"} {
		var a NodeAddress
		if err := a.UnmarshalText([]byte(good)); err != nil {
			t.Error(err)
		}
		if text, err := a.MarshalText(); err != nil || string(text) != good {
			t.Errorf("the node %s is read and then written as %s; error %v", good, text, err)
		}
	}
	for _, bad := range []string{"", "a", "a=", "a=10.0.0.1", "=10.0.0.1:1", "a=:7126", "a b=10.0.0.1:1", "a=10.0.0.1:"} {
		var a NodeAddress
		if err := a.UnmarshalText([]byte(bad)); err == nil || !strings.Contains(err.Error(), "NAME=HOST:PORT") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Each mistake names its key. A node, a collector and a server in no cluster are valid.
func TestClusterIsValidated(t *testing.T) {
	three := nodesOf(t, "a=10.0.0.1:7126", "b=10.0.0.2:7126", "c=10.0.0.3:7126")
	tls := ClusterTLS{CAFile: "ca", CertFile: "cert", KeyFile: "key"}
	for _, c := range []struct {
		role    string
		cluster Cluster
		wrong   string // key; empty for none
	}{
		{RoleAll, Cluster{}, ""},
		{RoleCollector, Cluster{}, ""},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s"}, ""},
		{RoleStore, Cluster{Node: "a", Nodes: three, SecretFile: "s", Join: true, Listen: "0.0.0.0:7126"}, ""},
		{RoleAll, Cluster{Node: "a", Nodes: three, TLS: tls}, ""},
		{RoleCollector, Cluster{Nodes: three, SecretFile: "s"}, ""},
		{RoleGateway, Cluster{Nodes: three, SecretFile: "s"}, ""},
		{"collector,gateway", Cluster{Nodes: three, SecretFile: "s"}, ""},

		{RoleAll, Cluster{Node: "a"}, "cluster.nodes"},
		{RoleAll, Cluster{Nodes: three, SecretFile: "s"}, "cluster.node"},
		{RoleAll, Cluster{Node: "d", Nodes: three, SecretFile: "s"}, "cluster.node"},
		{RoleAll, Cluster{Node: "a", Nodes: append(three, three[0]), SecretFile: "s"}, "cluster.nodes"},
		{RoleAll, Cluster{Node: "a", Nodes: three}, "cluster.secret_file"},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", TLS: tls}, "cluster.secret_file"},
		{RoleAll, Cluster{Node: "a", Nodes: three, TLS: ClusterTLS{CAFile: "ca"}}, "cluster.tls"},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", Listen: "7126"}, "cluster.listen"},
		{RoleCollector, Cluster{Node: "a", Nodes: three, SecretFile: "s"}, "cluster.node"},
		{RoleCollector, Cluster{Nodes: three, SecretFile: "s", Join: true}, "cluster.node"},
		{RoleCollector, Cluster{Nodes: three, SecretFile: "s", Outbox: MinOutbox - 1}, "cluster.outbox"},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", ReplaceAfter: time.Second}, "cluster.replace_after"},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", UpgradeAfter: -1}, "cluster.upgrade_after"},
		{RoleAll, Cluster{Node: "b", Nodes: three, SecretFile: "s", Join: true, Founder: "a"}, ""},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", Founder: "a"}, "cluster.founder"},
		{RoleAll, Cluster{Node: "a", Nodes: three, SecretFile: "s", Join: true, Founder: "d"}, "cluster.founder"},
		{RoleCollector, Cluster{Nodes: three, SecretFile: "s", Founder: "a"}, "cluster.node"},
		{RoleStore, Cluster{}, "role"},
		{RoleGateway, Cluster{}, "role"},
		{"collector,gateway", Cluster{Node: "a", Nodes: three, SecretFile: "s"}, "cluster.node"},
		{"gateway,all", Cluster{Nodes: three, SecretFile: "s"}, "role"},
		{"gateway,gateway", Cluster{Nodes: three, SecretFile: "s"}, "role"},
		{"gate", Cluster{}, "role"},
		{"", Cluster{}, "role"},
	} {
		config := Default()
		config.Role, config.Cluster = c.role, c.cluster
		config.Cluster.Outbox = cmp.Or(c.cluster.Outbox, DefaultCluster().Outbox)
		config.Cluster.ReplaceAfter = cmp.Or(c.cluster.ReplaceAfter, DefaultCluster().ReplaceAfter)
		var wrong []string
		for _, p := range config.Cluster.Validate() {
			wrong = append(wrong, "cluster."+p.Key)
		}
		for _, p := range config.Validate() {
			wrong = append(wrong, p.Key)
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("role %s, %+v: got problems with %q, want %q", c.role, c.cluster, got, c.wrong)
		}
	}
}

// The name of this machine is that of the configuration, also in the label host, or else the kernel's.
func TestHost(t *testing.T) {
	c := Default()
	kernels, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if host, err := c.Host(); err != nil || host != kernels {
		t.Errorf("the host is %q, error %v; want %q", host, err, kernels)
	}
	c.Hostname = "machine-17"
	if all, err := c.ConstantLabels(); err != nil || all.Get("host") != "machine-17" {
		t.Errorf("the labels are %v, error %v; want the host machine-17", all, err)
	}
	c.Hostname = "machine 17"
	if problems := c.Validate(); len(problems) != 1 || problems[0].Key != "hostname" {
		t.Errorf("a name with a space: %v", problems)
	}
}

// Kubernetes gives a machine's IPv6 address without the brackets that a URL needs.
func TestKubeletByIPv6(t *testing.T) {
	for url, want := range map[string]string{
		"https://fd00::1:10250":   "https://[fd00::1]:10250",
		"https://[fd00::1]:10250": "https://[fd00::1]:10250",
		"https://10.0.0.1:10250":  "https://10.0.0.1:10250",
		"http://kubelet":          "http://kubelet",
		"":                        "",
	} {
		c := Kubelet{URL: url}
		if got := c.Target(); got != want || len(c.Validate()) != 0 {
			t.Errorf("%q: asks %q, want %q; problems %v", url, got, want, c.Validate())
		}
	}
}

// Labels of pods need a kubelet to ask, at a URL.
func TestKubelet(t *testing.T) {
	for _, c := range []struct {
		url    string
		origin []string
		pod    map[string]string
		wrong  string
	}{
		{"", nil, nil, ""},
		{"", []string{"container_id"}, nil, ""},
		{"", []string{"pod_name"}, nil, "kubelet.url"},
		{"", nil, map[string]string{"app": "app"}, "kubelet.url"},
		{"https://10.0.0.1:10250", []string{"pod_name", "kube_namespace"}, map[string]string{"app": "app"}, ""},
		{"10.0.0.1:10250", []string{"pod_name"}, nil, "url"},
	} {
		config := Default()
		config.Kubelet.URL, config.Mapping.OriginLabels, config.Mapping.PodLabels = c.url, c.origin, c.pod
		var wrong []string
		for _, p := range append(config.Kubelet.Validate(), config.Validate()...) {
			wrong = append(wrong, p.Key)
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("%+v: got problems with %q, want %q", c, got, c.wrong)
		}
	}
}

// A store has all roles that need no DogStatsD socket.
func TestRolesOfAStore(t *testing.T) {
	c := Default()
	c.Role = RoleStore
	if r := c.Roles(); r.Has(RoleCollector) || r.Has(RoleProber) || !r.Has(RoleAggregator) || !r.Has(RoleQuerier) {
		t.Errorf("a store has the roles %v, want aggregator and querier, but no collector or prober", r)
	}
}
