package explain

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/mapping/statsdexporter"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// The examples of docs/migration.md hold: the statsd_exporter file converts to the Freshet file shown
// there, and under each configuration each line becomes what the table says.
func TestMigrationManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(.+\\\\\\|.+)` \\| `?(.+?)`? \\|$")
	examples := 0
	for section := range strings.SplitSeq(string(text), "\n## ") {
		if theirs := block(section, "yaml statsd_exporter"); theirs != "" {
			c, err := statsdexporter.Convert([]byte(theirs))
			if err != nil {
				t.Fatal(err)
			}
			if want := block(section, "yaml freshet"); !strings.HasSuffix(c.Text, want) {
				t.Errorf("the file of the manual converts to\n%s\nwant\n%s", c.Text, want)
			}
		}
		ours := block(section, "yaml freshet")
		if ours == "" {
			continue
		}
		file := filepath.Join(t.TempDir(), "freshet.yaml")
		if err := os.WriteFile(file, []byte("dogstatsd: {host_label: false}\n"+ours), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := conf.New("X", settings.Default()).Load(file, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		x, err := New(c, time.Unix(1_800_000_000, 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows.FindAllStringSubmatch(section, -1) {
			examples++
			b := x.Explain("default", []byte(strings.ReplaceAll(row[1], `\|`, "|"))).Lines[0].Becomes
			got := b.Query
			if b.Dropped {
				got = "dropped"
			}
			if got != row[2] {
				t.Errorf("%s: got %s, but the manual says %s", row[1], got, row[2])
			}
		}
	}
	if examples != 9 {
		t.Errorf("found %d examples, want 9; did the form of the tables change?", examples)
	}
}

// block returns the text of the first fenced block of a kind.
func block(text, kind string) string {
	_, text, _ = strings.Cut(text, "```"+kind+"\n")
	text, _, _ = strings.Cut(text, "```")
	return text
}
