package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// Slices are days in UTC, without a gap. The same span of the same source names the same blocks, so that a command goes
// on where it was interrupted, and another one names others.
func TestSlices(t *testing.T) {
	of := func(source, match, from, to string) []slice {
		t.Helper()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f := newSpanFlags(flags, "now")
		if err := flags.Parse([]string{"--from", from, "--to", to, "--match", match}); err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)
		s, err := f.span(now, now)
		if err != nil {
			t.Fatal(err)
		}
		return s.slices(source)
	}
	all := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")
	want := []string{
		"2026-10-01 18:00 to 2026-10-02 00:00", "2026-10-02 00:00 to 2026-10-03 00:00",
		"2026-10-03 00:00 to 2026-10-03 06:00",
	}
	if len(all) != len(want) {
		t.Fatalf("the slices are %v, want %v", all, want)
	}
	for i, s := range all {
		if s.String() != want[i] || int64(s.id.Time()) != s.from {
			t.Errorf("slice %d is %s, of the time %d; want %s", i, s, s.id.Time(), want[i])
		}
		if again := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[i]; again.id != s.id {
			t.Errorf("slice %s has the name %s, and then %s", s, s.id, again.id)
		}
	}
	// A command that is run the next day with a later end has whole days in common.
	if later := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T07:00:00Z"); later[1].id != all[1].id ||
		later[2].id == all[2].id {
		t.Error("of a longer span, another day is read again, or the day that grew is not")
	}
	if of("b", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[1].id == all[1].id ||
		of("a", "down", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[1].id == all[1].id {
		t.Error("blocks of another source or other series have the same names")
	}
	// A block of the future would make a Prometheus that opens it refuse the present.
	if future := of("a", "up", "2026-10-03T18:00:00Z", "2026-12-01T00:00:00Z"); len(future) != 1 {
		t.Errorf("a span that ends in the future has the slices %v", future)
	}
}

func TestSpansThatAreMistakes(t *testing.T) {
	for name, args := range map[string][]string{
		"no beginning":       {},
		"the end is earlier": {"--from", "2000", "--to", "1000"},
		"the future":         {"--from", "2027-01-01T00:00:00Z"},
		"no selector":        {"--from", "1000", "--match", "sum(up)"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f := newSpanFlags(flags, "now")
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)
		if _, err := f.span(now, now); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadEndpoint(t *testing.T) {
	for source, want := range map[string]string{
		"prometheus:9090":                     "http://prometheus:9090/api/v1/read",
		"https://host/prometheus/":            "https://host/prometheus/api/v1/read",
		"http://mimir/prometheus/api/v1/read": "http://mimir/prometheus/api/v1/read",
		"ftp://host":                          "",
		"http://":                             "",
	} {
		if got, err := readEndpoint(source); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
}
