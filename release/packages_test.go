package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// unit returns the values of a directive of the installed service.
func unit(t *testing.T, root, directive string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/freshet.service"))
	check(t, err)
	for _, m := range regexp.MustCompile(`(?m)^`+directive+`=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		values = append(values, m[1])
	}
	return values
}

// A small system gets the package from dpkg, with all that a real one has for its scripts. The package enables and
// starts nothing. Freshet runs by its unit's command line, as the unit's user, and takes data. A removal leaves the
// configuration, and a purge leaves only the data and their user.
func TestDebIsInstalledAndPurged(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	manual, err := generate(real.source, real.time)
	check(t, err)
	check(t, real.writeDeb(runtime.GOARCH, manual))
	root := shortDir(t)
	asked := debianRoot(t, root)
	const database, data = "/var/lib/dpkg", "/var/lib/freshet"
	before := paths(t, root, database)
	dpkg := func(args ...string) {
		t.Helper()
		cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--log=/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		check(t, run(cmd))
	}

	dpkg("--install", real.deb(runtime.GOARCH))
	if got, want := asked(), "daemon-reload\n"; got != want {
		t.Errorf("the installation asks systemctl for\n%swant\n%s", got, want)
	}
	for _, of := range []string{"ExecStart", "ExecReload"} {
		program := strings.Fields(unit(t, root, of)[0])[0]
		if _, err := os.Stat(filepath.Join(root, program)); err != nil {
			t.Errorf("%s needs what the package does not depend on: %v", of, err)
		}
	}
	p := &process{root: root, env: unit(t, root, "Environment")}
	p.uid, p.gid = user(t, root, unit(t, root, "User")[0])
	owned(t, filepath.Join(root, "/var/lib", unit(t, root, "StateDirectory")[0]), p.uid, p.gid) // systemd makes these
	owned(t, filepath.Join(root, "/run", unit(t, root, "RuntimeDirectory")[0]), p.uid, p.gid)
	variables, err := os.ReadFile(filepath.Join(root, strings.TrimPrefix(unit(t, root, "EnvironmentFile")[0], "-")))
	check(t, err)
	for line := range strings.Lines(string(variables)) {
		if !strings.HasPrefix(line, "#") {
			p.env = append(p.env, strings.TrimSpace(line))
		}
	}
	if !slices.Contains(p.env, "FRESHET_CONFIG=/etc/freshet.yaml") {
		t.Errorf("the service does not read /etc/freshet.yaml: %q", p.env)
	}
	socket := filepath.Join(root, "run/freshet/dogstatsd.sock")
	p.serves(t, sendTo("unixgram", socket), []string{"/usr/bin/freshet", "health"},
		strings.Fields(unit(t, root, "ExecStart")[0])...)
	everySetting(t, p)

	configured := []byte("http: {listen: 127.0.0.1:1}\n")
	check(t, os.WriteFile(filepath.Join(root, "etc/freshet.yaml"), configured, 0o644))
	dpkg("--install", real.deb(runtime.GOARCH)) // over the old one, as an upgrade does
	if got, want := asked(), "daemon-reload\n"; got != want {
		t.Errorf("an upgrade asks systemctl for\n%swant\n%s", got, want)
	}
	if kept, err := os.ReadFile(filepath.Join(root, "etc/freshet.yaml")); err != nil || !bytes.Equal(kept, configured) {
		t.Errorf("an upgrade leaves the configuration %q, error %v; want it as it was", kept, err)
	}

	dpkg("--remove", "freshet")
	if got, want := asked(), "stop freshet.socket freshet.service\n"+
		"--no-reload disable freshet.socket freshet.service\ndaemon-reload\n"; got != want {
		t.Errorf("the removal asks systemctl for\n%swant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/freshet.yaml")); err != nil {
		t.Errorf("a removal does not keep the configuration: %v", err)
	}
	dpkg("--purge", "freshet")
	if left := paths(t, root+data); len(left) == 0 {
		t.Error("the data are gone")
	}
	users := []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock", "/etc/passwd-",
		"/etc/group-", "/etc/shadow-", "/etc/gshadow-"}
	for _, path := range paths(t, root, database, data) {
		if !slices.Contains(before, path) && !slices.Contains(users, path) {
			t.Errorf("the package leaves %s behind", path)
		}
	}
}

// everySetting checks that /etc/freshet.yaml changes nothing as it is, and is a valid configuration with every
// comment sign removed.
func everySetting(t *testing.T, p *process) {
	t.Helper()
	path := filepath.Join(p.root, "etc/freshet.yaml")
	text, err := os.ReadFile(path)
	check(t, err)
	p.env = nil // the file alone
	defaults, err := p.command("/usr/bin/freshet", "config").Output()
	check(t, err)
	same, err := p.command("/usr/bin/freshet", "config", "--config", "/etc/freshet.yaml").Output()
	check(t, err)
	if !bytes.Equal(same, defaults) {
		t.Errorf("/etc/freshet.yaml changes the configuration to\n%s", same)
	}
	settings := regexp.MustCompile(`(?m)^( *)#([a-z]\w*:)`).ReplaceAll(text, []byte("$1$2"))
	all := filepath.Join(p.root, "etc/all.yaml")
	check(t, os.WriteFile(all, settings, 0o644))
	if err := run(p.command("/usr/bin/freshet", "check", "/etc/all.yaml")); err != nil {
		t.Error(err)
	}
	check(t, os.Remove(all))
}

// debianRoot makes a root in which dpkg can install: a shell, what the package's scripts call, and a dpkg database
// with what the package depends on. The function that it returns has what systemctl was asked for since the last
// call.
func debianRoot(t *testing.T, root string) (asked func() string) {
	t.Helper()
	for _, program := range []string{"sh", "rm", "systemd-sysusers"} {
		path, err := exec.LookPath(program)
		check(t, err)
		copyProgram(t, root, path)
	}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "run/systemd/system", "etc", "dev"} {
		check(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	check(t, os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666)) // the scripts only write to it
	if _, err := os.Stat(filepath.Join(root, "bin")); err != nil {
		check(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	}
	status := "Package: systemd\nStatus: install ok installed\nArchitecture: all\nVersion: 252\n" +
		"Maintainer: nobody\nDescription: stands in for systemd\n"
	check(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte(status), 0o644))
	log := filepath.Join(root, "systemctl")
	check(t, os.WriteFile(log, nil, 0o644))
	systemctl := []byte("#!/bin/sh\necho \"$@\" >>/systemctl\n")
	check(t, os.WriteFile(filepath.Join(root, "usr/bin/systemctl"), systemctl, 0o755))
	return func() string {
		text, err := os.ReadFile(log)
		check(t, err)
		check(t, os.WriteFile(log, nil, 0o644))
		return string(text)
	}
}

// user returns the numbers of a user of a root.
func user(t *testing.T, root, name string) (uid, gid int) {
	t.Helper()
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	check(t, err)
	m := regexp.MustCompile(`(?m)^` + name + `:[^:]*:(\d+):(\d+):`).FindSubmatch(users)
	if m == nil {
		t.Fatalf("no user %s in\n%s", name, users)
	}
	uid, err = strconv.Atoi(string(m[1]))
	check(t, err)
	gid, err = strconv.Atoi(string(m[2]))
	check(t, err)
	return uid, gid
}

// Both packages have the same files, apart from the directory of zsh's completions, and the same scripts. Only the
// binary can be executed, and the files that administrators change are marked.
func TestRPMHasTheFilesOfTheDeb(t *testing.T) {
	r := built(t)
	check(t, r.pack())
	for _, arch := range architectures {
		fromDeb, scripts := debFiles(t, r.deb(arch))
		rpm, err := os.Open(r.rpm(arch))
		check(t, err)
		defer rpm.Close()
		header, err := rpmutils.ReadRpm(rpm)
		check(t, err)
		entries, err := header.Header.GetFiles()
		check(t, err)
		fromRPM, configs := map[string]string{}, []string(nil)
		for _, f := range entries {
			name := strings.Replace(f.Name(), "/site-functions/", "/vendor-completions/", 1)
			fromRPM[name] = fmt.Sprintf("%#o %d %s:%s", f.Mode()&0o777, f.Size(), f.UserName(), f.GroupName())
			if f.Flags()&rpmutils.RPMFILE_CONFIG != 0 {
				configs = append(configs, f.Name())
			}
		}
		if !maps.Equal(fromDeb, fromRPM) {
			t.Errorf("%s: the deb has\n%v\nand the rpm has\n%v", arch, fromDeb, fromRPM)
		}
		for _, path := range []string{
			"/usr/bin/freshet", "/usr/lib/systemd/system/freshet.service", "/usr/lib/systemd/system/freshet.socket",
			"/usr/lib/sysusers.d/freshet.conf", "/usr/share/bash-completion/completions/freshet",
			"/usr/share/zsh/vendor-completions/_freshet", "/usr/share/fish/vendor_completions.d/freshet.fish",
			"/usr/share/man/man1/freshet.1.gz", "/usr/share/man/man1/freshet-serve.1.gz",
			"/usr/share/man/man5/freshet-configuration.5.gz", "/usr/share/doc/freshet/copyright",
			"/usr/share/doc/freshet/CHANGELOG.md", "/usr/share/doc/freshet/licenses-page.txt",
			"/usr/share/doc/freshet/examples/alerts.yaml", "/usr/share/doc/freshet/examples/cluster-node.conf",
		} {
			if fromDeb[path] == "" {
				t.Errorf("%s: the packages lack %s", arch, path)
			}
		}
		if want := []string{"/etc/default/freshet", "/etc/freshet.yaml"}; !slices.Equal(configs, want) ||
			scripts["conffiles"] != strings.Join(want, "\n") {
			t.Errorf("%s: configuration files are %v in the rpm and %q in the deb, want %v", arch, configs,
				scripts["conffiles"], want)
		}
		for tag, script := range map[int]string{rpmutils.POSTIN: "postinst", rpmutils.PREUN: "prerm",
			rpmutils.POSTUN: "postrm"} {
			text, err := header.Header.GetString(tag)
			check(t, err)
			if strings.TrimSpace(text) != scripts[script] || text == "" {
				t.Errorf("%s: %s is %q in the rpm and %q in the deb", arch, script, text, scripts[script])
			}
		}
		for name, attributes := range fromDeb {
			if executable := strings.HasPrefix(attributes, "0755"); executable != (name == "/usr/bin/freshet") {
				t.Errorf("%s: %s has %s", arch, name, attributes)
			}
		}
	}
}

// debFiles returns the mode, size and owner of each file of a package, and the package's scripts and lists.
func debFiles(t *testing.T, deb string) (all, control map[string]string) {
	t.Helper()
	listed, err := exec.Command("dpkg-deb", "--contents", deb).Output()
	check(t, err)
	all = map[string]string{}
	for line := range strings.Lines(string(listed)) {
		// -rwxr-xr-x root/root  59170978 2026-11-28 19:00 ./usr/bin/freshet
		words := strings.Fields(line)
		if strings.HasPrefix(words[0], "d") {
			continue
		}
		mode := 0
		for i, c := range words[0][1:] {
			if c != '-' {
				mode |= 1 << (8 - i)
			}
		}
		all[words[5][1:]] = fmt.Sprintf("%#o %s %s", mode, words[2], strings.Replace(words[1], "/", ":", 1))
	}
	dir := t.TempDir()
	check(t, run(exec.Command("dpkg-deb", "--control", deb, dir)))
	control = map[string]string{}
	for _, name := range paths(t, dir) {
		text, err := os.ReadFile(dir + name)
		check(t, err)
		control[name[1:]] = strings.TrimSpace(string(text))
	}
	return all, control
}

// Manual pages in a package are compressed, as man expects.
func TestManPagesAreCompressed(t *testing.T) {
	r, err := gzip.NewReader(bytes.NewReader(compressed([]byte("page"))))
	check(t, err)
	if text, err := io.ReadAll(r); err != nil || string(text) != "page" || !r.ModTime.IsZero() {
		t.Errorf("%q of %v, %v", text, r.ModTime, err)
	}
}
