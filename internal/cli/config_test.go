package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// rich is a configuration with something in each section, including values that are hard to write back.
const rich = `
data_dir: /var/lib/freshet
log_level: debug
http: {listeners: [{listen: "127.0.0.1:7126", tenant: team-a}]}
dogstatsd:
  unixgram: ""
  socket_mode: "0600"
  receive_buffer: 8MiB
  listeners: [{network: unix, address: "{data_dir}/a.sock", tenant: team-a}]
  labels: {region: eu-west, odd: "yes: #no"}
mapping:
  origin_labels: [container_id]
  rules:
    - match: "app.*.time"
      labels: {app: "$1"}
      buckets: [0.1, 1, 10]
    - match: '^x\.(\d+)'
      match_type: regex
      relabel: [{source_labels: [a, b], separator: "", regex: "(.*)", target_label: c, replacement: ""}]
limits:
  tenants: {team-a: {max_series: 0}}
store: {retention: {10s: 3d}}
query: {timeout: 1m30s}
`

// writeFile writes text to a file and returns its path.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheck(t *testing.T) {
	good := writeFile(t, rich)
	bad := writeFile(t,
		"dogstatsd:\n  upd: x\naggregator: {lateness: 45s}\nmapping:\n  rules:\n  - {match: a.*, nmae: b}\n  - {match: "+
			"'(', match_type: regex}\n")
	code, stdout, stderr := freshet(t, "check", good)
	want := good + ": ok: 3 DogStatsD sockets, 2 mapping rules\n"
	if code != command.OK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, output %q, errors %q\nwant %q", code, stdout, stderr, want)
	}

	t.Setenv("FRESHET_DOGSTATSD_UPD", "x")
	code, stdout, stderr = freshet(t, "check", bad, good)
	golden(t, "check.txt", strings.ReplaceAll(strings.ReplaceAll(stdout+stderr, bad, "bad.yaml"), good, "good.yaml"))
	if code != command.Usage {
		t.Errorf("exit code %d", code)
	}

	code, stdout, _ = freshet(t, "check", "--json", good, bad)
	var all []checkedFile
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != command.Usage || len(all) != 2 || !all[0].OK ||
		all[1].OK || len(all[1].Problems) != 4 {
		t.Errorf("exit code %d, error %v, output %s", code, err, stdout)
	}
}

// A server with a broken rule file does not start, so check must not call its configuration fine. A relative path is
// below the working directory, wherever the configuration is.
func TestCheckReadsRuleFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"good.yaml": "groups: [{name: g, rules: [{record: a, expr: b}, {alert: C, expr: a > 1}]}]",
		"bad.yaml":  "groups: [{name: g, rules: [{record: a, expr: sum(}]}]",
		"new.yaml":  "groups: [{name: g, rules: [{record: a, expr: 'limitk(1, b)'}]}]",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ok = ": ok: 3 DogStatsD sockets, 0 mapping rules"
	for _, c := range []struct {
		why, text, want string
		args            []string
	}{
		{"a good file", "rules: {files: [good.yaml]}", ok + ", 2 rules in 1 rule file\n", nil},
		{"a glob may match nothing", "rules: {files: [none/*.yaml]}", ok + ", 0 rules in 0 rule files\n", nil},
		{"a broken file", "rules: {files: [good.yaml, bad.yaml]}", "bad.yaml: 1:", nil},
		{"a broken file of a tenant", "rules: {tenants: {team-a: {files: [" + dir + "/bad.yaml]}}}",
			dir + "/bad.yaml: 1:", nil},
		{"a missing file", "rules: {files: [gone.yaml]}",
			"gone.yaml: there is no such file in the working directory " + dir, nil},
		{"a missing file of another machine", "rules: {files: [gone.yaml]}", ok + "\n", []string{"--no-rules"}},
		{"a function that the configuration must allow", "rules: {files: [new.yaml]}", "new.yaml: 1:", nil},
		{"it allows the function", "rules: {files: [new.yaml]}\nquery: {experimental: true}",
			ok + ", 1 rule in 1 rule file\n", nil},
	} {
		file := writeFile(t, c.text+"\n")
		code, stdout, stderr := freshet(t, append([]string{"check", file}, c.args...)...)
		if strings.HasPrefix(c.want, ok) {
			if code != command.OK || stdout != file+c.want || stderr != "" {
				t.Errorf("%s: exit code %d, printed %q, errors %q; want 0 and %q", c.why, code, stdout, stderr, c.want)
			}
		} else if code != command.Usage || stdout != "" || !strings.HasPrefix(stderr, file+": 1 to fix:\n  "+c.want) {
			t.Errorf("%s: exit code %d, printed %q, errors %q; want 2 and %q", c.why, code, stdout, stderr, c.want)
		}
	}
}

// The output of `freshet config` can be loaded again, and gives the same configuration.
func TestConfigCanBeLoadedAgain(t *testing.T) {
	for name, text := range map[string]string{"defaults": "", "all sections": rich} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, text)
			args := []string{"--config", file, "--dogstatsd-udp", "127.0.0.1:9125"}
			t.Setenv("FRESHET_DRAIN", "5s")
			code, stdout, stderr := freshet(t, append([]string{"config"}, args...)...)
			if code != command.OK {
				t.Fatal(stderr)
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			from := settings.NewSource(flags)
			if err := flags.Parse(args); err != nil {
				t.Fatal(err)
			}
			want, err := from.Load()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Unsetenv("FRESHET_DRAIN"); err != nil {
				t.Fatal(err)
			}
			got, err := settings.NewSource(pflag.NewFlagSet("", pflag.ContinueOnError)).LoadText("printed", []byte(stdout))
			if err != nil {
				t.Fatalf("%v in\n%s", err, stdout)
			}
			if changes := conf.Diff(want, got); len(changes) > 0 {
				t.Errorf("the loaded configuration differs: %v", changes)
			}
			for _, line := range []string{"  # Set by --dogstatsd-udp; default 127.0.0.1:8125\n  udp: 127.0.0.1:9125\n",
				"# Set by FRESHET_DRAIN; default 30s\ndrain: 5s\n"} {
				if !strings.Contains(stdout, line) {
					t.Errorf("missing %q in\n%s", line, stdout)
				}
			}
		})
	}
}

func TestConfigJSON(t *testing.T) {
	code, stdout, stderr := freshet(t, "config", "--json", "--config", writeFile(t, rich))
	var settings []conf.Setting
	if err := json.Unmarshal([]byte(stdout), &settings); err != nil || code != command.OK {
		t.Fatal(code, err, stderr)
	}
	for _, s := range settings {
		if s.Key == "store.retention.10s" &&
			(s.Value != "3d" || s.Default != "2d" || !strings.HasSuffix(s.SetBy, ":22") || s.Restart) {
			t.Errorf("got %+v", s)
		}
	}
}

// With a server's address, the command shows the server's configuration, not the configuration of
// this shell.
func TestConfigOfAServer(t *testing.T) {
	server, asked := answering(t, http.StatusOK, `{"status":"success","data":{"yaml":"drain: 1m\n"}}`)
	code, stdout, stderr := freshet(t, "config", "--server", server, "--drain", "5s")
	if code != command.OK || stdout != "drain: 1m\n" {
		t.Errorf("exit code %d, output %q, errors %q; want 0 and the server's configuration", code, stdout, stderr)
	}
	if path := asked().Path; path != "/api/v1/status/config" {
		t.Errorf("the command requested %s, want /api/v1/status/config", path)
	}
}

// Each key in the reference appears unchanged in rendered Markdown.
func TestWriteReference(t *testing.T) {
	var b strings.Builder
	if err := writeReference(&b, settings.Schema().Keys()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<!-- keys: process -->\n- **`role`** (`all`, restart",
		"- **`dogstatsd.udp`** (`127.0.0.1:8125`, `--dogstatsd-udp`): HOST:PORT of the UDP socket; empty turns it off.\n",
		"- **`data_dir`** (`./data`, restart, `--data-dir`): ",
		"- **`dogstatsd.labels`** (`{}`, file only): ",
		"  - `http.listeners[].listen` (string): HOST:PORT\n",
	} {
		if !strings.Contains(b.String(), want) {
			_, _ = io.WriteString(os.Stderr, b.String())
			t.Fatalf("no %q", want)
		}
	}
}
