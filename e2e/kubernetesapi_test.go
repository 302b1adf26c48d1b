//go:build kubernetes

package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// kubernetes is a cluster: etcd, the API server, the controllers, the scheduler, kubectl and helm are real, and the
// test stands in for the kubelets (see sync) and for kube-proxy (see ServeHTTP).
type kubernetes struct {
	t         *testing.T
	tools     string // directory of the programs, which `make kubernetes` builds
	dir       string // certificates, keys, data
	namespace string
	free      []*machine          // for pods whose names are not known before
	machines  map[string]*machine // of the pods of StatefulSets, by name: their addresses stand in /etc/hosts
	pods      map[string]*kubePod // by name and uid
	ends      bool                // the release is gone: the last stores find no other one that could lead
	volumes   map[string]string   // directories of the volumes of StatefulSets' pods, by name

	mu    sync.Mutex
	ready map[string]string // addresses of ready gateways, which the Service has, by the pod's name
}

const (
	kubeServer = "http://127.0.0.1:8001" // what kubectl proxy serves, with the rights of an administrator
	kubeAddr   = testAddress + ":8080"   // the Service that the test asks
)

// kubeObject is what the test reads of an object.
type kubeObject struct {
	Metadata struct {
		Name, UID         string
		DeletionTimestamp string `yaml:"deletionTimestamp"`
	}
	Spec struct {
		podSpec  `yaml:",inline"`
		NodeName string `yaml:"nodeName"`
	}
	Data map[string]string
}

// kubePod is a pod that runs.
type kubePod struct {
	*pod
	ready   bool
	stopped chan struct{} // nil until the pod is deleted; closed when its process has ended
	failed  error         // read once stopped is closed
}

// startKubernetes starts a cluster with three machines in three zones.
func startKubernetes(t *testing.T, namespace string) *kubernetes {
	t.Helper()
	tools, err := filepath.Abs("../.cache/kubernetes")
	check(t, err)
	k := &kubernetes{t: t, tools: tools, dir: dataDir(t), namespace: namespace, machines: map[string]*machine{},
		pods: map[string]*kubePod{}, volumes: map[string]string{}, ready: map[string]string{}}
	key := filepath.Join(k.dir, "accounts.key")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	k.writes("accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(private)})))
	k.writes("tokens.csv", "secret,admin,admin,system:masters\n")
	k.writes("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: secret}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]}`)
	config := "--kubeconfig=" + filepath.Join(k.dir, "kubeconfig")

	k.runs("server", "--data-dir", filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync") // etcd
	k.runs("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--cert-dir="+filepath.Join(k.dir, "certificates"),
		"--service-account-issuer=https://kubernetes", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--authorization-mode=Node,RBAC",
		"--token-auth-file="+filepath.Join(k.dir, "tokens.csv"), "--service-cluster-ip-range=10.98.0.0/24",
		"--bind-address=127.0.0.1", "--advertise-address="+testAddress)
	eventually(t, time.Minute, "the API server is ready", func() error {
		_, err := k.command("kubectl", "get", "--raw", "/readyz").Output()
		return err
	})
	k.runs("kube-controller-manager", config, "--service-account-private-key-file="+key, "--leader-elect=false",
		"--node-monitor-grace-period=1h") // the machines send no heartbeats
	k.runs("kube-scheduler", config, "--leader-elect=false")
	k.runs("kubectl", "proxy", "--port=8001")
	t.Cleanup(func() {
		if t.Failed() {
			state, _ := k.command("kubectl", "-n", namespace, "get", "all,pvc,pv,events", "-o", "wide").CombinedOutput()
			t.Logf("at the end:\n%s", state)
		}
	})
	for i := range 3 {
		k.apply(fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: machine-%d, labels: {
  kubernetes.io/hostname: machine-%[1]d, topology.kubernetes.io/zone: zone-%[1]d}}}`, i))
		k.kubectl("patch", "node", fmt.Sprintf("machine-%d", i), "--subresource=status", "--type=merge", "-p",
			`{"status":{"conditions":[{"type":"Ready","status":"True"}],`+
				`"allocatable":{"cpu":"8","memory":"32Gi","pods":"20"},"capacity":{"cpu":"8","memory":"32Gi","pods":"20"}}}`)
		k.apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: volume-%d}, spec: {
  capacity: {storage: 1Ti}, accessModes: [ReadWriteOnce], hostPath: {path: /volumes/%[1]d}}}`, i))
	}
	server := &http.Server{Addr: kubeAddr, Handler: k}
	go func() { _ = server.ListenAndServe() }() // until the test ends
	t.Cleanup(func() { _ = server.Close() })
	return k
}

func (k *kubernetes) writes(name, text string) {
	k.t.Helper()
	check(k.t, os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600))
}

func (k *kubernetes) command(tool string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(k.tools, tool), args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(k.dir, "kubeconfig"), "HOME="+k.dir)
	return cmd
}

// runs starts a program of the cluster, which runs until the test ends.
func (k *kubernetes) runs(tool string, args ...string) {
	k.t.Helper()
	begin(k.t, k.dir, k.command(tool, args...))
}

// output runs kubectl or helm to its end, and returns what it printed, with its warnings.
func (k *kubernetes) output(tool string, args ...string) string {
	k.t.Helper()
	out, err := k.command(tool, args...).CombinedOutput()
	if err != nil {
		k.t.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (k *kubernetes) kubectl(args ...string) string {
	k.t.Helper()
	return k.output("kubectl", args...)
}

func (k *kubernetes) apply(text string) {
	k.t.Helper()
	k.writes("object.yaml", text)
	k.kubectl("apply", "-f", filepath.Join(k.dir, "object.yaml"))
}

// list returns the objects of a kind in the namespace.
func (k *kubernetes) list(path string) []kubeObject {
	k.t.Helper()
	answer, err := http.Get(kubeServer + path)
	if err != nil {
		k.t.Fatal(err)
	}
	defer answer.Body.Close()
	var all struct{ Items []kubeObject }
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, yaml.Unmarshal(text, &all)); err != nil || answer.StatusCode != http.StatusOK {
		k.t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
	return all.Items
}

func (k *kubernetes) of(kind string) string {
	return "/api/v1/namespaces/" + k.namespace + "/" + kind
}

func (k *kubernetes) send(method, path, body string) error {
	r, err := http.NewRequest(method, kubeServer+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %w\n%s", method, path, answer.Status, err, text)
	}
	return nil
}

// until does the kubelets' work until a condition holds.
func (k *kubernetes) until(limit time.Duration, what string, holds func() error) {
	k.t.Helper()
	eventually(k.t, limit, what, func() error {
		k.sync()
		return holds()
	})
}

// runsBeside does the kubelets' work while kubectl or helm runs, and returns what the command printed.
func (k *kubernetes) runsBeside(limit time.Duration, tool string, args ...string) string {
	k.t.Helper()
	var out bytes.Buffer
	cmd := k.command(tool, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	check(k.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	k.until(limit, tool+" "+strings.Join(args, " "), func() error {
		select {
		case err := <-ended:
			if err != nil {
				k.t.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, out.String())
			}
			return nil
		default:
			return errors.New("it still runs")
		}
	})
	return out.String()
}

// sync does what the kubelets of all machines do: it starts the pods that were scheduled, says which are ready, stops
// those that were deleted, and removes these once their processes have ended.
func (k *kubernetes) sync() {
	k.t.Helper()
	for _, of := range k.list(k.of("pods")) {
		name, id := of.Metadata.Name, of.Metadata.Name+" "+of.Metadata.UID
		p := k.pods[id]
		switch {
		case of.Metadata.DeletionTimestamp != "" && (p == nil || p.stopped != nil && isClosed(p.stopped)):
			if p != nil && p.failed != nil && !k.ends {
				k.t.Error(p.failed)
			}
			if err := k.send(http.MethodDelete, k.of("pods/")+name, `{"gracePeriodSeconds": 0}`); err != nil {
				k.t.Error(err)
			}
			k.gone(id)
		case of.Metadata.DeletionTimestamp != "" && p.stopped == nil:
			k.says(p, name, false)
			p.stopped = make(chan struct{})
			go func() {
				defer close(p.stopped)
				p.failed = p.end()
			}()
		case p == nil && of.Spec.NodeName != "":
			k.pods[id] = k.start(of)
		case p != nil && p.stopped == nil:
			if ready := p.probe() == nil; ready != p.ready {
				k.says(p, name, ready)
			}
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// says tells the API server the state of a pod, and the stand-in for kube-proxy if it is a gateway's.
func (k *kubernetes) says(p *kubePod, name string, ready bool) {
	k.t.Helper()
	p.ready = ready
	state := map[bool]string{true: "True", false: "False"}[ready]
	status := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}], "conditions": [
{"type": "Ready", "status": %q}, {"type": "ContainersReady", "status": %[2]q}]}}`, p.on.address, state)
	if err := k.send(http.MethodPatch, k.of("pods/")+name+"/status", status); err != nil {
		k.t.Error(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.ready, name); ready && strings.Contains(name, "-gateway-") {
		k.ready[name] = fmt.Sprintf("%s:%d", p.on.address, p.port("http"))
	}
}

// start starts a pod with what its objects have.
func (k *kubernetes) start(of kubeObject) *kubePod {
	k.t.Helper()
	name := of.Metadata.Name
	d := &deployment{t: k.t, machines: map[string]*machine{}, hosts: "127.0.0.1 localhost\n", secrets: map[string]string{}}
	for store, m := range k.machines {
		d.hosts += fmt.Sprintf("%s %s.freshet-store.%s.svc\n", m.address, store, k.namespace)
	}
	for _, c := range k.list(k.of("configmaps")) {
		r := rendered{Kind: "ConfigMap", Data: c.Data}
		r.Metadata.Name = c.Metadata.Name
		d.documents = append(d.documents, r)
	}
	for _, s := range k.list(k.of("secrets")) {
		for key, value := range s.Data {
			var plain []byte
			check(k.t, json.Unmarshal([]byte(`"`+value+`"`), &plain))
			d.secrets[key] = string(plain)
		}
	}
	on, known := k.machines[name]
	if !known {
		on, k.free = k.free[0], k.free[1:]
	}
	d.machines[name] = on
	p := &kubePod{pod: d.podOf(name, of.Spec.NodeName, of.Spec.podSpec)}
	if previous := k.volumes[name]; previous != "" { // the claim of a StatefulSet's pod outlives the pod
		check(k.t, os.RemoveAll(p.root+"/data"))
		check(k.t, os.Rename(previous, p.root+"/data"))
	}
	if known {
		k.volumes[name] = p.root + "/data"
	}
	p.start()
	return p
}

// gone forgets a pod whose process has ended.
func (k *kubernetes) gone(id string) {
	if p := k.pods[id]; p != nil && k.machines[p.on.name] == nil {
		k.free = append(k.free, p.on)
	}
	delete(k.pods, id)
}

// ServeHTTP hands a request to one of the ready gateways, as kube-proxy does with the Service.
func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	to := &url.URL{Scheme: "http"}
	for _, to.Host = range k.ready { // in random order
		break
	}
	k.mu.Unlock()
	if to.Host == "" {
		panic(http.ErrAbortHandler) // no connection, rather than an answer
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	forward.ServeHTTP(w, r)
}
