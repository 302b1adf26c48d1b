//go:build kubernetes

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A real Kubernetes takes the chart, as docs/kubernetes.md says: helm installs it, the scheduler spreads its pods, all
// become ready, an upgrade of all pods loses no acknowledged sample, and a second store is not evicted while one is
// away.
//
// `make kubernetes` builds the programs and runs this test.
func TestChartInKubernetes(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	stores := []string{"freshet-store-0", "freshet-store-1", "freshet-store-2"}
	others := []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
	all := machines(t, append(append([]string{}, stores...), others...)...)
	k := startKubernetes(t, "metrics")
	for _, s := range stores {
		k.machines[s] = all[s]
	}
	for _, o := range others {
		k.free = append(k.free, all[o])
	}
	k.takesAllSets()

	t.Log(k.kubectl("create", "namespace", "metrics"))
	k.writes("cluster-secret", k.freshet("cluster", "secret"))
	secret := filepath.Join(k.dir, "cluster-secret")
	k.writes("push-secret", k.freshet("cluster", "secret", "--push", "--cluster-secret-file", secret))
	k.kubectl("-n", "metrics", "create", "secret", "generic", "freshet", "--from-file="+secret,
		"--from-file="+filepath.Join(k.dir, "push-secret"))
	t.Log(k.output("helm", "install", "freshet", "deploy/helm/freshet", "--namespace", "metrics", "--set",
		"image.repository=registry.example.com/freshet"))
	for _, of := range []string{"statefulset/freshet-store", "deployment/freshet-gateway", "daemonset/freshet-collector"} {
		t.Log(k.runsBeside(2*time.Minute, "kubectl", "-n", "metrics", "rollout", "status", of))
	}
	t.Log(k.kubectl("-n", "metrics", "get", "pods,persistentvolumeclaims,poddisruptionbudgets", "-o", "wide"))
	on := map[string]bool{}
	for _, of := range k.list(k.of("pods")) {
		if strings.HasPrefix(of.Metadata.Name, "freshet-store-") {
			on[of.Spec.NodeName] = true
		}
	}
	if len(on) != len(stores) {
		t.Errorf("three stores are on %d machines", len(on))
	}

	c := &trio{t: t, nodes: map[string]*process{"service": {listening: listening{HTTP: kubeAddr}}}}
	written := c.startWriter("written", breathe, "service")
	t.Log(k.output("helm", "upgrade", "freshet", "deploy/helm/freshet", "--namespace", "metrics", "--reuse-values",
		"--set", "image.tag=next"))
	for _, of := range []string{"statefulset/freshet-store", "deployment/freshet-gateway", "daemonset/freshet-collector"} {
		t.Log(k.runsBeside(10*time.Minute, "kubectl", "-n", "metrics", "rollout", "status", of))
	}
	written.stop()
	written.check("service")
	written.unbroken()

	evict := func(name string) error {
		return k.send("POST", k.of("pods/")+name+"/eviction",
			fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q}}`, name))
	}
	k.until(time.Minute, "the budget allows one eviction", func() error {
		budget := k.kubectl("-n", "metrics", "get", "pdb", "freshet-store", "-o", "jsonpath={.status.disruptionsAllowed}")
		if budget != "1" {
			return errors.New("it allows " + budget)
		}
		return nil
	})
	check(t, evict(stores[0]))
	if err := evict(stores[1]); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("while a store is away, another one is evicted: %v", err)
	}
	k.runsBeside(2*time.Minute, "kubectl", "-n", "metrics", "rollout", "status", "statefulset/freshet-store")
	k.ends = true
	t.Log(k.output("helm", "uninstall", "freshet", "--namespace", "metrics"))
	k.until(3*time.Minute, "the pods are gone", func() error {
		if n := len(k.list(k.of("pods"))); n > 0 {
			return fmt.Errorf("%d pods are left", n)
		}
		return nil
	})
	if n := len(k.list(k.of("persistentvolumeclaims"))); n != len(stores) {
		t.Errorf("%d volumes of %d stores are left after the release", n, len(stores))
	}
}

// takesAllSets checks that the API server takes each object of all sets of values, knows all of its fields, and that
// the pods but collectors are as restricted as the strictest of the Pod Security Standards wants them.
func (k *kubernetes) takesAllSets() {
	k.t.Helper()
	for kind, plural := range map[string]string{"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"} {
		k.apply(fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: %[2]s.monitoring.coreos.com}, spec: {group: monitoring.coreos.com, scope: Namespaced,
names: {kind: %[1]s, plural: %[2]s, singular: %[3]s}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, kind, plural,
			strings.ToLower(kind)))
		k.kubectl("wait", "--for=condition=Established", "crd/"+plural+".monitoring.coreos.com")
	}
	files, err := filepath.Glob(charts + "*.golden.yaml")
	check(k.t, err)
	for _, file := range files {
		set := strings.TrimSuffix(filepath.Base(file), ".golden.yaml")
		k.kubectl("create", "namespace", set)
		k.kubectl("label", "namespace", set, "pod-security.kubernetes.io/warn=restricted")
		said := k.kubectl("-n", set, "create", "--dry-run=server", "--validate=strict", "-f",
			"deploy/helm/testdata/"+set+".golden.yaml")
		k.t.Logf("%s:\n%s", set, said)
		for line := range strings.SplitSeq(said, "\n") {
			// Only collectors have directories of the machine.
			if strings.HasPrefix(line, "Warning:") && !strings.Contains(line, "hostPath") {
				k.t.Errorf("%s: %s", set, line)
			}
		}
	}
}

func (k *kubernetes) freshet(args ...string) string { return (&deployment{t: k.t}).prints(args...) }
