package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// If a timestamp is not used as it is, a warning says why.
func TestExplainTimes(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := settings.Default()
	c.DogStatsD.HostLabel = false
	x, err := New(c, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"a:1|c|T1799999999", ""},
		{"a:1|c|T1799999900", "oldest open tile"},
		{"a:1|c|T1800000600", "too far ahead"},
		{"b:1|g|T1799999900", ""},
		{"b:1|g|T1800000060", ""},
		{"b:1|g|T1800000061", "refused with the reason too_far_ahead"},
		{"_sc|c|0|d:1800000061", "refused with the reason too_far_ahead"},
		{"b:1|g|T1799999000", "aggregator.timed_window"},
		{"_sc|c|0|d:1799999000", "aggregator.timed_window"},
		{"_e{1,1}:a|b|d:1800000500", ""},
		{"_e{1,1}:a|b|d:1800000700", "10 minutes ahead"},
		{"_e{1,1}:a|b|d:1700000000", "events.retention"},
		{"a:-1|c", "-1 is refused; a rule with updown: true turns a into a gauge that adds up"},
	} {
		warnings := strings.Join(x.Explain("default", []byte(c.line)).Lines[0].Warnings, "\n")
		if !strings.Contains(warnings, c.want) || (c.want == "") != (warnings == "") {
			t.Errorf("%s: got %q, want %q", c.line, warnings, c.want)
		}
	}
}
