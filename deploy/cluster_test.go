package deploy_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dropIns are files that make freshet.service a part of a cluster, each with the file of its secret.
var dropIns = map[string]string{
	"cluster-node.conf":      "/etc/freshet/cluster-secret",
	"cluster-collector.conf": "/etc/freshet/push-secret",
	"cluster-gateway.conf":   "/etc/freshet/push-secret",
}

// A node, a collector and a gateway start with the variables of the unit, of their own drop-in, and of
// the example in the comment of the drop-in.
func TestClusterDropIns(t *testing.T) {
	binary := build(t)
	help := serveHelp(t, binary)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary, args...).Output()
		if err != nil {
			t.Fatalf("freshet %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	credentials, data := t.TempDir(), t.TempDir()
	secret := filepath.Join(credentials, "secret")
	write(t, secret, run("cluster", "secret"))
	secrets := map[string]string{"/etc/freshet/cluster-secret": read(t, secret),
		"/etc/freshet/push-secret": run("cluster", "secret", "--push", "--cluster-secret-file", secret)}
	run("cluster", "init", "--data-dir", data, "--name", "a")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	node := free.Addr().String()
	_ = free.Close()

	for _, file := range []string{"cluster-node.conf", "cluster-collector.conf", "cluster-gateway.conf"} {
		path := filepath.Join("systemd", file)
		service := readUnit(t, path)["Service"]
		want := []string{"cluster-secret:" + dropIns[file]}
		if got := service["LoadCredential"]; !slices.Equal(got, want) {
			t.Errorf("%s: LoadCredential = %v, want %v", file, got, want)
		}
		given := t.TempDir() // systemd's %d
		write(t, filepath.Join(given, "cluster-secret"), secrets[dropIns[file]])
		environment := map[string]string{}
		for _, v := range regexp.MustCompile(`(?m)^#   (FRESHET_[A-Z_]+=.*)$`).FindAllStringSubmatch(read(t, path), -1) {
			service["Environment"] = append(service["Environment"], v[1])
		}
		for _, assignment := range service["Environment"] {
			name, value, _ := strings.Cut(assignment, "=")
			checkVariable(t, help, name)
			environment[name] = strings.ReplaceAll(value, "%d", given)
		}
		environment["FRESHET_CLUSTER_NODES"] = "a=" + node // in place of three machines
		environment["FRESHET_HTTP_LISTEN"] = "127.0.0.1:0"
		environment["FRESHET_DATA_DIR"] = t.TempDir()
		if file == "cluster-node.conf" {
			environment["FRESHET_DATA_DIR"] = data
		}
		var all []string
		for name, value := range environment {
			all = append(all, name+"="+value)
		}
		if said := notified(t, binary, all...); said != "READY=1" {
			t.Errorf("with %s, the binary tells systemd %q, want READY=1", file, said)
		}
	}
}

// If systemd-analyze is installed, it finds no fault in the unit with any of the drop-ins.
func TestSystemdKnowsAllDirectives(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("not checked: systemd-analyze is not installed")
		return
	}
	for file := range dropIns {
		dir := t.TempDir()
		unit := strings.ReplaceAll(read(t, filepath.Join("systemd", "freshet.service")), "/usr/bin/freshet", os.Args[0])
		write(t, filepath.Join(dir, "freshet.service"), unit)
		if err := os.Mkdir(filepath.Join(dir, "freshet.service.d"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "freshet.service.d", "cluster.conf"), read(t, filepath.Join("systemd", file)))
		cmd := exec.CommandContext(t.Context(), analyze, "verify", filepath.Join(dir, "freshet.service"))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":") // with the usual directories
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify with %s: %v\n%s", file, err, out)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
