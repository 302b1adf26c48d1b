package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Series have labels of the pod that sent them, as a kubelet names it. A container that the kubelet lists later has no
// labels until then, and no sample is lost or counted twice when it gets them. Clients whose cgroup namespace hides the
// container's id send the inode of their cgroup, and their container is found by it.
func TestPodsAreFound(t *testing.T) {
	t.Parallel()
	hidden := strings.Repeat("c3", 32)
	var listed atomic.Bool
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := ""
		if listed.Load() {
			id = "containerd://late"
		}
		fmt.Fprintf(w, `{"items": [{"metadata": {"name": "shop-0", "namespace": "web", "uid": "u-1", "labels": {"app": "shop"}},
			"status": {"containerStatuses": [{"name": "shop", "containerID": "containerd://early"},
				{"name": "hidden", "containerID": "containerd://%s"}, {"name": "side", "containerID": %q}]}}]}`, hidden, id)
	}))
	t.Cleanup(kubelet.Close)
	cgroups := t.TempDir()
	inode := func(path ...string) uint64 {
		t.Helper()
		cgroup := filepath.Join(append([]string{cgroups}, path...)...)
		check(t, os.MkdirAll(cgroup, 0o755))
		info, err := os.Stat(cgroup)
		check(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	early := inode("kubepods.slice", "kubepods-podu_1.slice", "cri-containerd-"+hidden+".scope")
	dir := dataDir(t)
	config := filepath.Join(dir, "freshet.yaml")
	check(t, os.WriteFile(config, fmt.Appendf(nil, `
kubelet: {url: %s, token_file: "", cgroup_dir: %s}
mapping:
  origin_labels: [pod_name, kube_namespace, container_name]
  pod_labels: {app: app}
`, kubelet.URL, cgroups), 0o600))
	p := start(t, dir, "--config", config)
	const pod = `app="shop", kube_namespace="web", pod_name="shop-0"`
	eventually(t, time.Minute, "the kubelet has answered", func() error {
		if v, err := p.ownMetric("freshet_kubelet_known"); err != nil || v == 0 {
			return fmt.Errorf("%v pods are known; %v", v, err)
		}
		return nil
	})
	sendOne(t, p, "hits:1|c|c:ci-early", "hits:2|c|c:ci-early|card:low", "hits:4|c|c:ci-late",
		fmt.Sprintf("hits:8|c|c:in-%d", early))
	for query, want := range map[string]float64{
		`hits{container_name="shop", ` + pod + `}`:                                   1,
		`hits{container_name="hidden", ` + pod + `}`:                                 8,
		`hits{container_name="shop", kube_namespace="web", app="shop", pod_name=""}`: 2,
		`hits{container_name="", kube_namespace=""}`:                                 4,
	} {
		eventually(t, time.Minute, "the samples are counted", func() error { return p.expect(query, want, 0) })
	}
	listed.Store(true)
	sent := 0.0
	eventually(t, time.Minute, "the container that was listed later has labels", func() error {
		sendOne(t, p, "hits:1|c|c:ci-late")
		sent++
		_, err := p.value(`hits{container_name="side", ` + pod + `}`)
		return err
	})
	eventually(t, time.Minute, "all samples are counted", func() error { return p.expect("sum(hits)", 15+sent, 0) })

	// A cgroup that is made later is looked for once a sender says its inode.
	later := inode("kubepods.slice", "kubepods-podu_1.slice", "cri-containerd-"+hidden+".scope", "container")
	eventually(t, time.Minute, "the container whose cgroup was made later has labels", func() error {
		sendOne(t, p, fmt.Sprintf("jobs:1|c|c:in-%d", later))
		_, err := p.value(`jobs{container_name="hidden", ` + pod + `}`)
		return err
	})
}
