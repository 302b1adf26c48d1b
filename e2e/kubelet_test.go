package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
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
	early := cgroup(t, cgroups, "kubepods.slice", "kubepods-podu_1.slice", "cri-containerd-"+hidden+".scope")
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
	p.knowsPods(t)
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
	later := cgroup(t, cgroups, "kubepods.slice", "kubepods-podu_1.slice", "cri-containerd-"+hidden+".scope", "container")
	eventually(t, time.Minute, "the container whose cgroup was made later has labels", func() error {
		sendOne(t, p, fmt.Sprintf("jobs:1|c|c:in-%d", later))
		_, err := p.value(`jobs{container_name="hidden", ` + pod + `}`)
		return err
	})
}

// knowsPods waits until the kubelet has answered.
func (p *process) knowsPods(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the kubelet has answered", func() error {
		if v, err := p.ownMetric("freshet_kubelet_known"); err != nil || v == 0 {
			return fmt.Errorf("%v pods are known; %v", v, err)
		}
		return nil
	})
}

// cgroup makes a directory in the place of a cgroup, and returns its inode.
func cgroup(t *testing.T, path ...string) uint64 {
	t.Helper()
	dir := filepath.Join(path...)
	check(t, os.MkdirAll(dir, 0o755))
	info, err := os.Stat(dir)
	check(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

// startKubelet answers as the kubelet of a machine with this address: at the port of kubelets, by TLS, and only to
// those who have the token. It returns the certificate of the CA that signed its own, which is itself.
func startKubelet(t *testing.T, address, token, pods string) (ca string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	itself := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(address)}}
	der, err := x509.CreateCertificate(rand.Reader, itself, itself, public, key)
	check(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/pods" || r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, pods)
	}))
	check(t, server.Listener.Close()) // the kernel chose its port
	server.Listener, err = net.Listen("tcp", address+":10250")
	check(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
