package catalogue

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	secondMillis = int64(1000)
	minuteMillis = 60 * secondMillis
	hourMillis   = 60 * minuteMillis
	dayMillis    = 24 * hourMillis
)

// saved stands in for the catalogue's file, which the flusher writes.
type saved map[string]Metric

func (s saved) flush(c *Catalogue) {
	for _, m := range c.Gone() {
		delete(s, m.Name)
	}
	for _, m := range c.Dirty() {
		s[m.Name] = m
	}
}

func (s saved) restart(t *testing.T, maxNames int) *Catalogue {
	t.Helper()
	var all []Metric
	for _, m := range s {
		all = append(all, m)
	}
	c := New(maxNames)
	if refused := c.Load(all); refused > 0 {
		t.Fatalf("%d metrics refused", refused)
	}
	return short(c)
}

// short(c) sets the default time for c: a series is gone half an hour after its last sample.
func short(c *Catalogue) *Catalogue {
	c.KeepFor(func(series.Kind) time.Duration { return 30 * time.Minute })
	return c
}

// A flood of 480 new names a second for four minutes used to fill the catalogue, and then each new
// name was stored with a hash for 40 days.
func TestNamesOfAFloodAreGivenBack(t *testing.T) {
	const start = 1_800_000_000_000
	for _, restart := range []bool{false, true} {
		file := saved{}
		c := short(New(DefaultMaxNames))
		resolve := func(now int64, words string) string {
			name, _ := c.Resolve(now, claim(words))
			return name
		}
		// The name `report` was used every five days for half a year, and once more this morning.
		for day := int64(180); day >= 0; day -= 5 {
			resolve(start-day*dayMillis-6*hourMillis, "counter report")
		}
		now := int64(start)
		beyond := 0
		for second := range 4 * 60 {
			now = start + int64(second)*secondMillis
			if resolve(now, "gauge steady") != "steady" {
				t.Fatal("a known name changes during the flood")
			}
			for i := range 480 {
				name := fmt.Sprintf("flood_%d_%d", second, i)
				if resolve(now, "counter "+name) != name {
					beyond++
				}
			}
			file.flush(c)
		}
		if want := 480*240 + 2 - DefaultMaxNames; beyond != want {
			t.Fatalf("%d names of the flood found no room, want %d", beyond, want)
		}
		if name := resolve(now+minuteMillis, "counter early"); name == "early" {
			t.Error("the name early was given back, although its series may live")
		}
		if restart {
			c = file.restart(t, DefaultMaxNames)
		}
		for range 40 {
			now += minuteMillis
			c.Touch(now, "t", []byte("steady"))
		}
		for i := range 30_000 { // enough names for three searches
			words := fmt.Sprintf("counter new_%d", i)
			if i%10_000 == 0 {
				now += searchEvery + 1
			}
			if name := resolve(now, words); "counter "+name != words {
				t.Fatalf("restart %v: after the flood the new name %d is stored as %s", restart, i, name)
			}
		}
		file.flush(c)
		if n := len(file); n > DefaultMaxNames {
			t.Errorf("restart %v: %d names are saved, want at most DefaultMaxNames", restart, n)
		}
		if file["steady"].Kind != series.Gauge || file["report"].Kind != series.Counter {
			t.Errorf("restart %v: a name in use lost its owner: %+v, %+v", restart, file["steady"], file["report"])
		}
	}
}

// A name is given back or not, depending on how long it was in use and how long it has been unused
// since.
func TestWhatIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		why        string
		used, idle time.Duration
		given      bool
	}{
		{"used once, and its series may live", 0, 29 * time.Minute, false},
		{"once", 0, 31 * time.Minute, true},
		{"used for an hour, unused for less", 61 * time.Minute, 60 * time.Minute, false},
		{"used for an hour, unused for longer", 61 * time.Minute, 62 * time.Minute, true},
		{"used for a month, unused for a week", 720 * time.Hour, 168 * time.Hour, false},
	} {
		cat, file := short(New(1)), saved{}
		const start = 1_800_000_000_000
		cat.Resolve(start, claim("counter x"))
		end := start + c.used.Milliseconds()
		cat.Touch(end, "t", []byte("x"))
		file.flush(cat)
		_, report := cat.Resolve(end+c.idle.Milliseconds(), claim("gauge x"))
		if given := report.Finding != Full; given != c.given || given && cat.GivenBack() != 1 {
			t.Errorf("%s: given back: %v, want %v", c.why, given, c.given)
		}
		// The name now belongs to another kind, and the file must say so.
		if file.flush(cat); c.given && (len(file) != 1 || file["x"].Kind != series.Gauge) {
			t.Errorf("%s: saved %+v", c.why, file)
		}
	}
}

// A file from before Metric.First does not say how long a name was in use.
func TestNamesOfOldFilesAreKept(t *testing.T) {
	const start = 1_800_000_000_000
	c := short(New(1))
	c.Load([]Metric{{Tenant: "t", Name: "x", Base: "x", Raw: "x", Kind: series.Counter, LastSeen: start}})
	c.Resolve(start+hourMillis, claim("counter x"))
	if _, report := c.Resolve(start+30*dayMillis, claim("counter y")); report.Finding != Full {
		t.Errorf("the name was given back: %v", report.Finding)
	}
}

// Gone returns a name again if it could not be removed from the file, unless the name has a new owner
// by then.
func TestMarkGone(t *testing.T) {
	const start = 1_800_000_000_000
	c := short(New(2))
	c.Resolve(start, claim("counter x"))
	c.Resolve(start, claim("counter y"))
	c.Dirty()
	c.Resolve(start+hourMillis, claim("counter z"))
	c.Resolve(start+hourMillis+searchEvery, claim("counter a"))
	gone := c.Gone()
	if len(gone) != 2 || gone[0].Name != "x" || gone[1].Name != "y" || len(c.Gone()) > 0 {
		t.Fatalf("Gone returned %+v", gone)
	}
	c.MarkGone(gone)
	c.Resolve(start+3*hourMillis, claim("counter y"))
	if gone := c.Gone(); len(gone) != 2 || gone[0].Name == "y" || gone[1].Name == "y" {
		t.Errorf("after MarkGone, Gone returned %+v, want two names, and not y", gone)
	}
}
