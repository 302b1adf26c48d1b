package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// The output is a configuration of Freshet, and the exit code tells whether all of it is equivalent to
// the input.
func TestConvert(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"same.yml":  "mappings:\n- {match: a.*, name: b, labels: {which: $1}}\n",
		"other.yml": "mappings:\n- {match: a.*, name: b, ttl: 1m}\n",
		"bad.yml":   "mappings:\n- {match: a.*}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		code int
		says string
	}{{"same.yml", command.OK, ""}, {"other.yml", command.Failure, "other.yml:2: ttl"},
		{"bad.yml", command.Usage, "line 2"}, {"none.yml", command.Usage, "no such file"}} {
		out, errs, code := shell(t, "convert", "statsd_exporter", filepath.Join(dir, c.file))
		if code != c.code || !strings.Contains(errs, c.says) || (c.says == "") != (errs == "") {
			t.Errorf("%s: exit %d\n%s", c.file, code, errs)
		}
		if c.code == command.Usage {
			if out != "" {
				t.Errorf("%s: the command printed %q, want nothing", c.file, out)
			}
			continue
		}
		converted := filepath.Join(dir, "freshet.yaml")
		if err := os.WriteFile(converted, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := conf.New("X", settings.Default()).Load(converted,
			func(string) (string, bool) { return "", false }); err != nil {
			t.Errorf("%s: %v\n%s", c.file, err, out)
		}
		shown, errs, code := shell(t, "explain", "a.x:1|c", "--config", converted)
		if code != command.OK || !strings.Contains(shown, " b") {
			t.Errorf("%s: exit %d, %s\n%s", c.file, code, errs, shown)
		}
	}
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"convert", "statsd_exporter", "-"})
	root.SetIn(strings.NewReader("mappings:\n- {match: a.*, name: b}\n"))
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "name: 'b'") {
		t.Errorf("convert from standard input: error %v, output\n%s", err, &out)
	}
	if _, errs, code := shell(t, "convert", "graphite", "x"); code != command.Usage ||
		!strings.Contains(errs, "statsd_exporter") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
