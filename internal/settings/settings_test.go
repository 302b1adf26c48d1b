package settings

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// A process keeps its data directory, and the sockets in it, until it is restarted. So a reload that
// names another data directory must not move the sockets.
func TestAReloadMovesNoSockets(t *testing.T) {
	from := NewSource(pflag.NewFlagSet("", pflag.ContinueOnError))
	from.KeepBelow("/old")
	c, err := from.LoadText("freshet.yaml", []byte("data_dir: /new\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/new" || c.DogStatsD.Unixgram != "/old/dogstatsd.sock" {
		t.Errorf("data directory %s, socket %s; want /new, /old/dogstatsd.sock", c.DataDir, c.DogStatsD.Unixgram)
	}
}

// A key that needs a restart keeps its value, and is shown with this value, even if the file no longer
// has the key.
func TestReloadedConfigIsShown(t *testing.T) {
	from := NewSource(pflag.NewFlagSet("", pflag.ContinueOnError))
	old, err := from.LoadText("old.yaml", []byte("query: {timeout: 1m}\nlog_level: warn\n"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := from.LoadText("new.yaml", []byte("drain: 5s\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := old.Reloaded(next)
	shown, err := from.LoadText("shown.yaml", []byte(now.YAML()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conf.Diff(now, shown) {
		t.Errorf("the configuration in force and the shown one differ: %s", c)
	}
	text := now.YAML()
	if !strings.Contains(text, "# Set by old.yaml:1; default 2m\n") || !strings.Contains(text, "#log_level: info\n") {
		t.Errorf("the shown configuration lacks the setting of old.yaml or the default of log_level:\n%s", now.YAML())
	}
}
