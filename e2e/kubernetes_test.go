package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The chart's pods form a cluster out of empty volumes, take data at the collector's port and socket and at a gateway,
// and answer there. During an update in the order of a StatefulSet nothing is lost, and no request fails. A store that
// comes back with an empty volume founds no second cluster.
func TestChartIsUpdated(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	stores := []string{"freshet-store-0", "freshet-store-1", "freshet-store-2"}
	gateways := []string{"freshet-gateway-x", "freshet-gateway-y"}
	d := deploy(t, "cluster", append(append([]string{"freshet-collector-z"}, gateways...), stores...)...)
	pods := map[string]*pod{stores[0]: d.pod(stores[0])}
	pods[stores[0]].start()
	pods[stores[0]].says(t, "has not said yet whether it belongs to a cluster") // and founds none
	for name := range d.machines {
		if pods[name] == nil {
			pods[name] = d.pod(name)
			pods[name].start()
		}
	}
	for _, p := range pods {
		p.becomesReady()
	}
	status, err := pods[stores[0]].command("/usr/bin/freshet", "cluster", "status").CombinedOutput() // kubectl exec
	if err != nil || strings.Count(string(status), "voter") != len(stores) {
		t.Errorf("freshet cluster status: %v\n%s", err, status)
	}
	t.Logf("freshet cluster status:\n%s", status)
	c := &trio{t: t, nodes: map[string]*process{}}
	for _, name := range gateways {
		c.nodes[name] = pods[name].process
	}
	written := c.startWriter("written", breathe, gateways...)
	collector := pods["freshet-collector-z"]
	port, socket := collector.port("dogstatsd"), collector.root+"/run/freshet/dogstatsd.sock"
	byPort := c.startIncrements("udp", fmt.Sprintf("%s:%d", collector.on.address, port), "by_port", 2)
	bySocket := c.startIncrements("unixgram", socket, "by_socket", 2)

	for i := len(stores) - 1; i >= 0; i-- { // the order of a StatefulSet
		p := pods[stores[i]]
		p.stop()
		p.start()
		p.becomesReady()
	}

	written.stop()
	pods[gateways[0]].countsAll("by_port", byPort)
	pods[gateways[0]].countsAll("by_socket", bySocket)
	pods[gateways[0]].showsPage()
	for _, name := range gateways {
		written.check(name)
	}
	written.unbroken()

	first, second := pods[stores[0]], pods[stores[1]]
	first.stop()
	must(t, "find", first.root+"/data", "-mindepth", "1", "-delete")
	second.kill(t)
	eventually(t, time.Minute, "the third store knows that nobody leads", func() error {
		s, err := pods[stores[2]].clusterState()
		if err == nil && s.Leader != "" {
			err = fmt.Errorf("%s leads", s.Leader)
		}
		return err
	})
	first.start()
	first.says(t, "belongs to cluster") // the third store has it
	second.start()
	eventually(t, time.Minute, "a store with an empty volume is refused by its cluster", func() error {
		select {
		case <-first.exited:
			return nil
		default:
			return errors.New("it still runs")
		}
	})
	if said := first.output.String(); !strings.Contains(said, "has another data directory already") {
		t.Errorf("a store with an empty volume ends: %v\n%s", first.err, said)
	}
}

// The pod of a chart with everything in one takes data at its port, and answers.
func TestChartOfOnePod(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	p := deploy(t, "single", "freshet-0").pod("freshet-0")
	p.start()
	p.becomesReady()
	c := &trio{t: t}
	sent := c.startIncrements("udp", fmt.Sprintf("%s:%d", p.on.address, p.port("dogstatsd")), "hits", 2)
	reach(time.Now().Add(time.Second))
	p.countsAll("hits", sent)
	p.showsPage()
	p.stop()
}

// A collector of a spoke hands everything to the hub's stores, with no more of the hub than the push-secret and the
// stores' addresses, and with the labels of its spoke and of the pods that send. While the hub is unreachable, senders
// go on. Afterwards nothing is missing.
func TestChartOfASpoke(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const gateway, collector = "freshet-gateway-x", "freshet-collector-z"
	stores := []string{"freshet-store-0", "freshet-store-1", "freshet-store-2"}
	hub := deploy(t, "cluster", append([]string{gateway, collector}, stores...)...)
	container := strings.Repeat("c3", 32)
	spoke := hub.spoke("spoke", startKubelet(t, testAddress, serviceToken, fmt.Sprintf(`{"items": [{
		"metadata": {"name": "shop-0", "namespace": "web", "uid": "u-1", "labels": {"app.kubernetes.io/name": "shop"}},
		"status": {"containerStatuses": [{"name": "server", "containerID": "containerd://%s"}]}}]}`, container)))
	pods := map[string]*pod{}
	for i, name := range stores {
		spoke.hosts += fmt.Sprintf("%s metrics-%d.example.com\n", hub.machines[name].address, i)
		pods[name] = hub.pod(name)
	}
	pods[gateway], pods[collector] = hub.pod(gateway), spoke.pod(collector)
	p := pods[collector]
	inode := cgroup(t, p.root, "host/sys/fs/cgroup/kubepods.slice/cri-containerd-"+container+".scope")
	for _, each := range pods {
		each.start()
	}
	for _, each := range pods {
		each.becomesReady()
	}

	p.knowsPods(t)
	c := &trio{t: t}
	socket := p.root + "/run/freshet/dogstatsd.sock"
	byPort := c.startIncrements("udp", fmt.Sprintf("%s:%d", p.on.address, p.port("dogstatsd")), "by_port", 2)
	bySocket := c.startIncrements("unixgram", socket, "by_socket", 2)
	conn, err := net.Dial("unixgram", socket)
	check(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "orders:1|c|c:in-%d", inode)
	check(t, err)
	want := map[string]string{"__name__": "orders", "cluster": "spoke-1", "host": "machine-of-freshet-collector-z",
		"kube_namespace": "web", "pod_name": "shop-0", "container_name": "server", "app": "shop"}
	eventually(t, time.Minute, "the series has the labels of its spoke, machine and pod", func() error {
		got, err := pods[gateway].query("orders")
		if err == nil && (len(got) != 1 || !maps.Equal(got[0].Metric, want)) {
			err = fmt.Errorf("the series are %v", got)
		}
		return err
	})

	const coalesced = "freshet_outbox_coalesced_windows_total" // of those that have waited for 10 s
	before, err := p.ownMetric(coalesced)
	check(t, err)
	var back []func()
	for _, name := range stores {
		back = append(back, hub.machines[name].cut())
	}
	eventually(t, time.Minute, "windows have waited in the outbox for 10 s", func() error {
		v, err := p.ownMetric(coalesced)
		if err == nil && v == before {
			err = errors.New("none has")
		}
		return err
	})
	waiting, err := p.ownMetric("freshet_outbox_waiting_samples")
	check(t, err)
	for _, restore := range back {
		restore()
	}
	byPort.stop()
	bySocket.stop()
	pods[gateway].countsAll(`by_port{cluster="spoke-1"}`, byPort)
	pods[gateway].countsAll(`by_socket{cluster="spoke-1"}`, bySocket)
	t.Logf("counted are %v increments by UDP and %v by the socket; %v samples waited while the hub was away",
		byPort.sent, bySocket.sent, waiting)
}

// Freshet knows each variable that the chart sets, and takes each configuration, for all sets of values: it ignores a
// variable that is misspelt.
func TestChartSetsWhatFreshetKnows(t *testing.T) {
	t.Parallel()
	help, err := exec.Command(freshet, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(charts + "*.golden.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d sets of values; %v", len(files), err)
	}
	for _, file := range files {
		set := strings.TrimSuffix(filepath.Base(file), ".golden.yaml")
		all := readChart(t, set)
		for _, of := range all {
			for _, container := range of.Spec.Template.Spec.Containers {
				environment := os.Environ()
				for _, v := range container.Env {
					name, ours := strings.CutPrefix(v.Name, "FRESHET_")
					flag := " --" + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + " "
					if ours && !strings.Contains(string(help), flag) {
						t.Errorf("%s: %s sets %s, and freshet serve has no flag%s", set, of.Metadata.Name, v.Name, flag)
					}
					value := strings.ReplaceAll(v.Value, "$(NODE_IP)", "10.0.0.1")
					environment = append(environment, v.Name+"="+cmp.Or(value, of.Metadata.Name+"-0"))
				}
				config := filepath.Join(t.TempDir(), "freshet.yaml")
				check(t, os.WriteFile(config, []byte(configOf(all, of.Spec.Template.Spec)), 0o600))
				cmd := exec.Command(freshet, "check", config)
				cmd.Env = environment
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: the configuration of %s: %v\n%s", set, of.Metadata.Name, err, out)
				}
			}
		}
	}
}

// configOf returns the configuration file of a pod.
func configOf(all []rendered, of podSpec) string {
	for _, v := range of.Volumes {
		for _, c := range all {
			if c.Kind == "ConfigMap" && c.Metadata.Name == v.ConfigMap.Name {
				return c.Data["freshet.yaml"]
			}
		}
	}
	return "none: the pod has no ConfigMap"
}
