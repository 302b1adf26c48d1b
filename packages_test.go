package freshet_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user id. If the test runs as root, the script runs as this user, who must not be able to
// install packages.
const nobody = 65534

// packages runs .ci/packages as a user who is not root. The script finds only the given programs and
// those of a minimal Debian. Each program is given as NAME or as NAME=SCRIPT.
func packages(t *testing.T, groups string, programs ...string) (out string, code int) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(".ci", "packages"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "packages") // the user nobody may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bash", "id", "realpath", "dirname"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range programs {
		name, script, _ := strings.Cut(p, "=")
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-s", "--"}, strings.Fields(groups)...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, []string{"PATH=" + dir}, bytes.NewReader(script)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// A user who is not root sees all missing packages at once, in one command to run. If the script named one
// package at a time, finding the last one could take an afternoon.
func TestEverythingMissingIsNamedAtOnce(t *testing.T) {
	for _, c := range []struct {
		why, groups string
		programs    []string
		want        []string
	}{
		{"a fresh Debian", "clients cluster lua engine release", []string{"apt-get"},
			[]string{"nodejs", "npm", "python3", "python3-venv", "g++", "curl", "chromium-headless-shell", "util-linux",
				"fonts-dejavu-core", "dpkg", "systemd-standalone-sysusers", "groff-base", "luajit2", "lua-busted", "lua-check",
				"valgrind", "default-jdk-headless", "maven"}},
		{"some are there", "clients lua engine",
			[]string{
				"apt-get", "node", "npm", "python3", "g++", "curl", "chromium", "luajit", "busted", "luacheck", "valgrind", "mvn",
			},
			[]string{"default-jdk-headless"}},
		{"the demo makes its load with wrk", "demo", []string{"apt-get"},
			[]string{"curl", "wrk", "luajit2", "lua-busted", "lua-check", "valgrind"}},
		{"the page alone", "page", []string{"apt-get", "node"}, []string{"npm"}},
	} {
		out, code := packages(t, c.groups, c.programs...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		before, list, found := strings.Cut(lines[len(lines)-1], "sudo apt-get update && sudo apt-get install -y ")
		if code != 1 || len(lines) != 2 || !found || strings.TrimSpace(before) != "" {
			t.Errorf("%s: exit code %d\n%s", c.why, code, out)
			continue
		}
		got := map[string]int{}
		for _, name := range strings.Fields(list) {
			got[name]++
		}
		for _, name := range c.want {
			if got[name] == 0 {
				t.Errorf("%s: %s is not in %s", c.why, name, list)
			}
			delete(got, name)
		}
		for name := range got {
			if !strings.HasPrefix(name, "lib") && name != "iproute2" { // these are looked up in /sbin of this machine
				t.Errorf("%s: %s is listed twice, or is listed although it is installed: %s", c.why, name, list)
			}
		}
	}
	if out, code := packages(t, "page engine", "node", "npm", "javac", "mvn"); code != 0 || out != "" {
		t.Errorf("with nothing missing, the exit code is %d, want 0 and no output: %s", code, out)
	}
	if out, code := packages(t, "cluster", "tc", "nsenter", "unshare"); code != 0 || out != "" {
		t.Errorf("with network namespaces, the exit code is %d, want 0 and no output: %s", code, out)
	}
	if out, code := packages(t, "cluster", "tc", "nsenter", "unshare=exit 1"); code != 1 ||
		!strings.Contains(out, "run make as root, or: sudo sysctl -w user.max_user_namespaces=") ||
		strings.Count(out, "\n") != 1 {
		t.Errorf("without network namespaces, the exit code is %d, want 1 and one line with the fix: %s", code, out)
	}
	if out, code := packages(t, "engine"); code != 1 || !strings.Contains(out, "(names are Debian's)") ||
		!strings.HasSuffix(out, "    default-jdk-headless maven\n") {
		t.Errorf("on a system other than Debian, the exit code is %d, want 1 and Debian's names of the packages: %s",
			code, out)
	}
}

// Each target checks its packages before any long work, and only .ci/packages installs packages.
func TestPackagesAreAskedForFirst(t *testing.T) {
	for target, want := range map[string]string{"test": "bash .ci/packages clients cluster lua engine release",
		"edge-demo": "bash .ci/packages demo"} {
		out, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-n", target).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if first, _, _ := strings.Cut(string(out), "\n"); first != want {
			t.Errorf("make %s begins with %q, want %q", target, first, want)
		}
	}
	files, err := exec.CommandContext(t.Context(), "git", "grep", "-lE", `apt-get install [^.]*\$`).Output()
	if got := strings.Fields(string(files)); err != nil && len(got) > 0 || len(got) > 1 ||
		len(got) == 1 && got[0] != ".ci/packages" {
		t.Errorf("the files %v install packages (%v), want only .ci/packages", got, err)
	}
	installs := regexp.MustCompile(`\.ci/packages (\w+)`)
	for file, group := range map[string]string{
		"ui/install": "page", "e2e/clients/install": "clients", "lua/install": "lua",
		"examples/coverage/engine/install": "engine", "lua/demo/run": "demo",
	} {
		text, err := os.ReadFile(file)
		if m := installs.FindSubmatch(text); err != nil || m == nil || string(m[1]) != group {
			t.Errorf("%s does not check the packages of the group %s (%v)", file, group, err)
		}
	}
}
