// Package deploy_test checks that the binary understands the files that install Freshet. Otherwise
// nobody would notice that the binary ignores a variable.
package deploy_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// build compiles the binary and returns its path.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "freshet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/freshet").CombinedOutput(); err !=
		nil {
		t.Fatalf("build freshet: %v\n%s", err, out)
	}
	return binary
}

// serveHelp returns the help of freshet serve, with all its flags.
func serveHelp(t *testing.T, binary string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("freshet serve --help: %v\n%s", err, out)
	}
	return string(out)
}

// checkVariable fails the test unless a flag of freshet serve has this variable.
func checkVariable(t *testing.T, help, name string) {
	t.Helper()
	key, ours := strings.CutPrefix(name, "FRESHET_")
	flag := "--" + strings.ToLower(strings.ReplaceAll(key, "_", "-"))
	if !ours || !slices.Contains(strings.Fields(help), flag) {
		t.Errorf("the variable %s sets the flag %s, which freshet serve does not have", name, flag)
	}
}

// readUnit returns the values of each directive of each section of a unit, in order.
func readUnit(t *testing.T, file string) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string]map[string][]string{}
	var section string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, found := strings.CutPrefix(line, "["); found {
			section = strings.TrimSuffix(name, "]")
			unit[section] = map[string][]string{}
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || section == "" {
			t.Fatalf("%s: %q is not a directive of a section", file, line)
		}
		unit[section][name] = append(unit[section][name], value)
	}
	return unit
}

// notified returns the first message that a server sends to systemd, with more variables in its environment.
func notified(t *testing.T, binary string, more ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "deploy") // t.TempDir may be too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = systemd.Close() }()
	if err := systemd.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), binary, "serve")
	serve.Env = append(os.Environ(), "NOTIFY_SOCKET="+path, "FRESHET_DATA_DIR="+dir, "FRESHET_HTTP_LISTEN=127.0.0.1:0",
		"FRESHET_DISTRIBUTOR_OTLP_GRPC_LISTEN=127.0.0.1:0", "FRESHET_DOGSTATSD_UDP=127.0.0.1:0")
	serve.Env = append(serve.Env, more...)
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = serve.Process.Kill(), serve.Wait() }()
	said := make([]byte, 100)
	n, err := systemd.Read(said)
	if err != nil {
		t.Error(err)
	}
	return string(said[:n])
}

// TestSocketUnit checks that the socket unit matches the service unit and the configuration: the service
// refuses to start with a socket that its configuration does not name.
func TestSocketUnit(t *testing.T) {
	socket := readUnit(t, filepath.Join("systemd", "freshet.socket"))
	service := readUnit(t, filepath.Join("systemd", "freshet.service"))["Service"]
	known := map[string]string{
		"Unit":    "Description Documentation",
		"Install": "WantedBy",
		"Socket":  "ListenDatagram ListenStream ReceiveBuffer SocketMode DirectoryMode",
	}
	for section, directives := range socket {
		for name := range directives {
			if !slices.Contains(strings.Fields(known[section]), name) {
				t.Errorf("[%s] %s is not a directive that the test knows", section, name)
			}
		}
	}

	t.Run("outlives the service, where everybody can reach it", func(t *testing.T) {
		if !slices.Equal(service["RuntimeDirectoryPreserve"], []string{"yes"}) {
			t.Error("the value of RuntimeDirectoryPreserve is not yes, so systemd removes the sockets' directory " +
				"with the service")
		}
		if service["DynamicUser"] != nil {
			t.Error("DynamicUser is set: systemd puts the preserved directory of such a service into /run/private, " +
				"which only root can enter")
		}
		users, err := os.ReadFile(filepath.Join("systemd", "freshet.sysusers.conf"))
		if err != nil || len(service["User"]) != 1 || !strings.Contains(string(users), "\nu "+service["User"][0]+" ") {
			t.Errorf("freshet.sysusers.conf does not create the user %v: %v", service["User"], err)
		}
	})

	t.Run("has the service's addresses", func(t *testing.T) {
		want := map[string]string{}
		for _, assignment := range service["Environment"] {
			name, value, _ := strings.Cut(assignment, "=")
			want[name] = value
		}
		help := serveHelp(t, build(t))
		listen := socket["Socket"]
		for _, path := range []struct{ variable, directive string }{
			{"FRESHET_DOGSTATSD_UNIXGRAM", "ListenDatagram"}, {"FRESHET_DOGSTATSD_UNIX", "ListenStream"},
		} {
			if !slices.Contains(listen[path.directive], want[path.variable]) {
				t.Errorf("%s = %v lacks %s, the value of %s", path.directive, listen[path.directive], want[path.variable],
					path.variable)
			}
		}
		for _, address := range []struct{ flag, directive string }{
			{"--dogstatsd-udp", "ListenDatagram"}, {"--http-listen", "ListenStream"},
		} {
			preset := regexp.MustCompile(address.flag + ` .*\(default "?([^")]+)`).FindStringSubmatch(help)
			if preset == nil || !slices.Contains(listen[address.directive], preset[1]) {
				t.Errorf("%s = %v lacks the default in %q", address.directive, listen[address.directive], preset)
			}
		}
		if n := len(listen["ListenDatagram"]) + len(listen["ListenStream"]); n != 4 {
			t.Errorf("the unit has %d sockets, want 4: the service refuses a socket that it does not read", n)
		}
	})
}

func TestUnit(t *testing.T) {
	binary := build(t)
	help := serveHelp(t, binary)
	file := filepath.Join("systemd", "freshet.service")
	unit := readUnit(t, file)
	service := unit["Service"]
	one := func(name string) string {
		if len(service[name]) != 1 {
			t.Errorf("%s is given %d times, want once", name, len(service[name]))
			return ""
		}
		return service[name][0]
	}

	t.Run("every directive is spelt as systemd knows it", func(t *testing.T) {
		known := map[string]string{ // systemd ignores other directives, with a warning in its log
			"Unit":    "Description Documentation Wants After StartLimitIntervalSec",
			"Install": "WantedBy",
			"Service": `Type TimeoutStartSec ExecStart ExecReload Environment EnvironmentFile Restart RestartSec RestartPreventExitStatus TimeoutStopSec
				User StateDirectory StateDirectoryMode RuntimeDirectory RuntimeDirectoryMode RuntimeDirectoryPreserve LimitNOFILE
				CapabilityBoundingSet LockPersonality MemoryDenyWriteExecute NoNewPrivileges PrivateDevices PrivateTmp
				ProtectClock ProtectControlGroups ProtectHome ProtectHostname ProtectKernelLogs ProtectKernelModules
				ProtectKernelTunables ProtectSystem RemoveIPC RestrictAddressFamilies RestrictNamespaces RestrictRealtime
				RestrictSUIDSGID SystemCallArchitectures SystemCallFilter UMask`,
		}
		for section, directives := range unit {
			for name := range directives {
				if !slices.Contains(strings.Fields(known[section]), name) {
					t.Errorf("[%s] %s is not a directive that the test knows", section, name)
				}
			}
		}
	})

	t.Run("is started when the binary says so, and reloads", func(t *testing.T) {
		if one("Type") != "notify" || one("TimeoutStartSec") != "infinity" ||
			one("ExecReload") != "/bin/sh -c 'kill -HUP $MAINPID'" {
			t.Errorf("Type = %s, TimeoutStartSec = %s, ExecReload = %s; want notify, infinity and kill -HUP",
				one("Type"), one("TimeoutStartSec"), one("ExecReload"))
		}
		if said := notified(t, binary); said != "READY=1" {
			t.Errorf("the binary tells systemd %q, want READY=1", said)
		}
	})

	t.Run("starts a command that exists, with flags that exist", func(t *testing.T) {
		words := strings.Fields(one("ExecStart"))
		if len(words) < 2 || words[0] != "/usr/bin/freshet" || words[1] != "serve" {
			t.Fatalf("ExecStart = %q, want /usr/bin/freshet serve", words)
		}
		for _, word := range words[2:] {
			if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") &&
				!slices.Contains(strings.Fields(help), flag) {
				t.Errorf("freshet serve has no flag %s", flag)
			}
		}
	})

	t.Run("writes only to directories that systemd creates for it", func(t *testing.T) {
		rooms := []string{path.Join("/var/lib", one("StateDirectory")), path.Join("/run", one("RuntimeDirectory"))}
		if one("ProtectSystem") != "strict" {
			t.Error("the service can write to the rest of the system")
		}
		for _, assignment := range service["Environment"] {
			name, value, _ := strings.Cut(assignment, "=")
			checkVariable(t, help, name)
			if !slices.ContainsFunc(rooms, func(room string) bool { return value == room || path.Dir(value) == room }) {
				t.Errorf("%s = %s is in none of the writable directories %v", name, value, rooms)
			}
		}
	})

	t.Run("names only variables that exist in its comments", func(t *testing.T) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`FRESHET_[A-Z_]+`).FindAllString(string(text), -1) {
			checkVariable(t, help, name)
		}
		if !strings.Contains(help, "FRESHET_CONFIG") {
			t.Error("freshet serve does not say that it reads FRESHET_CONFIG")
		}
	})

	t.Run("starts again unless the configuration is wrong", func(t *testing.T) {
		if one("Restart") != "always" {
			t.Errorf("Restart = %s", one("Restart"))
		}
		file := filepath.Join(t.TempDir(), "freshet.yaml")
		if err := os.WriteFile(file, []byte("frobnicate: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends the server if it starts after all
		defer cancel()
		serve := exec.CommandContext(ctx, binary, "serve", "--config", file)
		out, _ := serve.CombinedOutput() // the error only holds the exit code, which is checked below
		if code := strconv.Itoa(serve.ProcessState.ExitCode()); code != one("RestartPreventExitStatus") ||
			!strings.Contains(string(out), "frobnicate") {
			t.Errorf("got exit code %s, want %s (which keeps systemd from restarting) and an error that names "+
				"frobnicate:\n%s",
				code, one("RestartPreventExitStatus"), out)
		}
	})
}
