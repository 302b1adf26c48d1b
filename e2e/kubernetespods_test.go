package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// rendered is what the tests read of a document of the chart, as deploy/helm/testdata has it.
type rendered struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		Template    struct{ Spec podSpec }
	}
}

type podSpec struct {
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []volume
	Grace          int `yaml:"terminationGracePeriodSeconds"`
}

type container struct {
	Command []string
	Env     []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	ReadinessProbe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	} `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
	}
}

type volume struct {
	Name      string
	HostPath  *struct{}             `yaml:"hostPath"`
	ConfigMap struct{ Name string } `yaml:"configMap"`
	Secret    struct{ Items []keyToPath }
	Projected struct {
		Sources []struct {
			ServiceAccountToken struct{ Path string } `yaml:"serviceAccountToken"`
			ConfigMap           struct {
				Name  string
				Items []keyToPath
			} `yaml:"configMap"`
		}
	}
}

type keyToPath struct{ Key, Path string }

const charts = "../deploy/helm/testdata/"

// readChart returns the documents of a set of values.
func readChart(t *testing.T, set string) (all []rendered) {
	t.Helper()
	text, err := os.ReadFile(charts + set + ".golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var r rendered
		if err := yaml.Unmarshal([]byte(part), &r); err != nil {
			t.Fatalf("%s: %v\n%s", set, err, part)
		}
		all = append(all, r)
	}
	return all
}

// deployment runs pods of a set of values as processes: each in a root directory with the files that its volumes have,
// on a machine of its own, and as the image's user.
type deployment struct {
	t         *testing.T
	documents []rendered
	machines  map[string]*machine // by pod
	hosts     string              // content of /etc/hosts, in place of a DNS server
	secrets   map[string]string   // keys of the Secret
}

const (
	localhost = "127.0.0.1 localhost\n"

	// serviceToken is what Kubernetes makes for a pod that asks for a token of its service account.
	serviceToken = "token-of-the-service-account"
)

// deploy makes the machines for pods of a set of values: NAME-0 for the first pod of a StatefulSet, and any suffix for
// other pods.
func deploy(t *testing.T, set string, pods ...string) *deployment {
	t.Helper()
	d := &deployment{t: t, documents: readChart(t, set), machines: machines(t, pods...), hosts: localhost}
	for _, name := range pods {
		if of := d.controller(name); of.Kind == "StatefulSet" {
			d.hosts += fmt.Sprintf("%s %s.%s.metrics.svc\n", d.machines[name].address, name, of.Spec.ServiceName)
		}
	}
	file := filepath.Join(t.TempDir(), "secret")
	cluster := d.prints("cluster", "secret")
	if err := os.WriteFile(file, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	d.secrets = map[string]string{"cluster-secret": cluster,
		"push-secret": d.prints("cluster", "secret", "--push", "--cluster-secret-file", file)}
	return d
}

// spoke returns the deployment of another set of values, on the same machines, in a Kubernetes of its own: its Secret
// has no more than the hub's push-secret, and it has its own certificate of a CA.
func (d *deployment) spoke(set, ca string) *deployment {
	d.t.Helper()
	s := &deployment{t: d.t, documents: readChart(d.t, set), machines: d.machines, hosts: localhost,
		secrets: map[string]string{"push-secret": d.secrets["push-secret"]}}
	root := rendered{Kind: "ConfigMap", Data: map[string]string{"ca.crt": ca}}
	root.Metadata.Name = "kube-root-ca.crt" // Kubernetes makes it in each namespace
	s.documents = append(s.documents, root)
	return s
}

func (d *deployment) prints(args ...string) string {
	d.t.Helper()
	out, err := exec.Command(freshet, args...).Output()
	if err != nil {
		d.t.Fatalf("freshet %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// controller returns the object that makes a pod.
func (d *deployment) controller(pod string) rendered {
	d.t.Helper()
	name := pod[:strings.LastIndex(pod, "-")]
	for _, of := range d.documents {
		if of.Metadata.Name == name && len(of.Spec.Template.Spec.Containers) > 0 {
			return of
		}
	}
	d.t.Fatalf("the chart has no pods %s", name)
	return rendered{}
}

// imageUser is the user of the image, and of all pods.
const imageUser = 65532

// otherUsers reports whether users beside root exist, which is not so in a user namespace.
func otherUsers() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && len(strings.Fields(string(users))) == 3 && strings.Fields(string(users))[2] != "1"
}

// pod is a pod with one container.
type pod struct {
	t    *testing.T
	on   *machine
	spec podSpec
	root string // directory with all that the container sees
	env  []string
	*process
}

// pod prepares a pod: its image, volumes, variables, and its init containers have run.
func (d *deployment) pod(name string) *pod {
	d.t.Helper()
	return d.podOf(name, "machine-of-"+name, d.controller(name).Spec.Template.Spec)
}

// podOf prepares a pod of any name on a node of any name.
func (d *deployment) podOf(name, node string, spec podSpec) *pod {
	d.t.Helper()
	p := &pod{t: d.t, on: d.machines[name], spec: spec, root: dataDir(d.t)}
	must(d.t, "mkdir", "-p", p.root+"/usr/bin", p.root+"/etc", p.root+"/proc")
	must(d.t, "chmod", "755", p.root)
	p.writes("/etc/hosts", d.hosts)
	p.writes("/usr/bin/freshet", "")
	p.shares(freshet, "/usr/bin/freshet")
	p.shares("/proc", "/proc")
	for _, mount := range p.container().VolumeMounts {
		must(d.t, "mkdir", "-p", p.root+mount.MountPath)
		for file, text := range d.volume(p.spec, mount.Name) {
			p.writes(filepath.Join(mount.MountPath, file), text)
		}
	}
	p.owns()
	for _, e := range p.container().Env {
		switch e.ValueFrom.FieldRef.FieldPath {
		case "":
			p.env = append(p.env, e.Name+"="+p.expand(e.Value))
		case "metadata.name":
			p.env = append(p.env, e.Name+"="+name)
		case "spec.nodeName":
			p.env = append(p.env, e.Name+"="+node)
		case "status.hostIP":
			p.env = append(p.env, e.Name+"="+testAddress) // a pod has another address than its machine
		default:
			d.t.Fatalf("%s: the test knows no field %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
		}
	}
	return p
}

// expand replaces references to variables, as Kubernetes does: to those that come before.
func (p *pod) expand(value string) string {
	for _, before := range p.env {
		name, is, _ := strings.Cut(before, "=")
		value = strings.ReplaceAll(value, "$("+name+")", is)
	}
	return value
}

// shares makes a file or a directory of this machine visible to the container, until the test ends.
func (p *pod) shares(from, at string) {
	p.t.Helper()
	must(p.t, "mount", "--rbind", from, p.root+at)
	p.t.Cleanup(func() { must(p.t, "umount", "--lazy", p.root+at) })
}

// volume returns the files with which a volume begins.
func (d *deployment) volume(spec podSpec, name string) map[string]string {
	d.t.Helper()
	files := map[string]string{}
	add := func(items []keyToPath, from map[string]string) {
		d.t.Helper()
		for _, i := range items {
			text, ok := from[i.Key]
			if !ok { // Kubernetes does not start the pod
				d.t.Fatalf("the volume %s wants the key %s, which is not there", name, i.Key)
			}
			files[i.Path] = text
		}
	}
	for _, v := range spec.Volumes {
		if v.Name != name {
			continue
		}
		maps.Copy(files, d.configMap(v.ConfigMap.Name))
		add(v.Secret.Items, d.secrets)
		for _, source := range v.Projected.Sources {
			add(source.ConfigMap.Items, d.configMap(source.ConfigMap.Name))
			if path := source.ServiceAccountToken.Path; path != "" {
				files[path] = serviceToken
			}
		}
	}
	return files
}

// configMap returns the data of a ConfigMap, or none.
func (d *deployment) configMap(name string) map[string]string {
	for _, c := range d.documents {
		if c.Kind == "ConfigMap" && c.Metadata.Name == name {
			return c.Data
		}
	}
	return nil
}

// owns makes the volumes belong to the pod's user: Kubernetes does that with a claim or an empty directory, and an
// init container with directories of the machine.
func (p *pod) owns() {
	p.t.Helper()
	if !otherUsers() {
		return
	}
	for _, i := range p.spec.InitContainers {
		command := slices.Clone(i.Command)
		for at, word := range command {
			if strings.HasPrefix(word, "/") {
				command[at] = p.root + word
			}
		}
		must(p.t, command[0], command[1:]...)
	}
	for _, v := range p.spec.Volumes {
		if v.Name == "data" && v.HostPath != nil {
			return // on the machine
		}
	}
	must(p.t, "chown", fmt.Sprintf("%d:%[1]d", imageUser), p.root+"/data")
}

func (p *pod) container() container { return p.spec.Containers[0] }

func (p *pod) writes(path, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.root+path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// command returns a command in the pod's container. References to variables are not replaced: Kubernetes does that in
// a container's own command and its variables, and not in hooks.
func (p *pod) command(words ...string) *exec.Cmd {
	in := []string{p.root}
	if otherUsers() {
		in = []string{fmt.Sprintf("--userspec=%d:%[1]d", imageUser), p.root}
	}
	cmd := p.on.command("chroot", append(in, words...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, p.env...)
	return cmd
}

// start starts the pod's process.
func (p *pod) start() {
	p.t.Helper()
	p.process = begin(p.t, p.root+"/data", p.command(p.container().Command...))
	p.HTTP = fmt.Sprintf("%s:%d", p.on.address, p.port("http"))
}

func (p *pod) port(name string) int {
	p.t.Helper()
	for _, port := range p.container().Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	p.t.Fatalf("the container has no port %s", name)
	return 0
}

// becomesReady waits until the pod's probe succeeds.
func (p *pod) becomesReady() {
	p.t.Helper()
	eventually(p.t, 2*time.Minute, "the pod "+p.on.name+" is ready", func() error {
		select {
		case <-p.exited:
			p.t.Fatalf("freshet ended before it was ready: %v\n%s", p.err, p.output)
		default:
		}
		return p.probe()
	})
}

// probe asks once whether the pod is ready.
func (p *pod) probe() error {
	probe := p.container().ReadinessProbe.HTTPGet
	at := fmt.Sprintf("http://%s:%d%s", p.on.address, p.port(probe.Port), probe.Path)
	answer, err := (&http.Client{Timeout: 2 * time.Second}).Get(at)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the probe %s answers %s", at, answer.Status)
	}
	return nil
}

// stop ends the pod as Kubernetes does: preStop, SIGTERM, and no more time than the grace period.
func (p *pod) stop() {
	p.t.Helper()
	if err := p.end(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) end() error {
	over := time.After(time.Duration(p.spec.Grace) * time.Second)
	if hook := p.container().Lifecycle.PreStop.Exec.Command; len(hook) > 0 {
		if out, err := p.command(hook...).CombinedOutput(); err != nil {
			return fmt.Errorf("preStop of %s: %w\n%s", p.on.name, err, out)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%s ends: %w", p.on.name, p.err)
		}
		return nil
	case <-over:
		return fmt.Errorf("%s still runs at the end of its grace period of %d s", p.on.name, p.spec.Grace)
	}
}

// showsPage checks that the pod answers the page and its questions under the name that a port-forward gives it.
func (p *pod) showsPage() {
	p.t.Helper()
	for path, want := range map[string]string{"/explore": "<title>Freshet</title>", "/api/v1/query?query=1": `"success"`} {
		ask, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet,
			fmt.Sprintf("http://%s:%d%s", p.on.address, p.port("http"), path), nil)
		check(p.t, err)
		ask.Host = "127.0.0.1:7125"
		answer, err := http.DefaultClient.Do(ask)
		check(p.t, err)
		text, err := io.ReadAll(answer.Body)
		check(p.t, errors.Join(err, answer.Body.Close()))
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			p.t.Errorf("%s of the pod %s: %s, without %s:\n%.300s", path, p.on.name, answer.Status, want, text)
		}
	}
}

// countsAll stops a sender, and waits until the pod answers an expression with all that was sent.
func (p *pod) countsAll(expr string, sent *increments) {
	p.t.Helper()
	sent.stop()
	check(p.t, sent.err)
	eventually(p.t, time.Minute, "all increments are counted", func() error { return p.expect(expr, sent.sent, 0) })
}
