package diagnose

import (
	"regexp"
	"testing"
)

func TestAverage(t *testing.T) {
	for n, want := range map[float64]string{
		-1: "0", 0: "0", 5.1e-6: "0", 0.0099: "0", 0.01: "0.01", 0.123: "0.12", 9.94: "9.9", 12.3: "12", 1234.5: "1,234",
	} {
		if got := average(n); got != want {
			t.Errorf("average(%v) = %s, want %s", n, got, want)
		}
	}
}

// An idle server has no figures that only a computer would write, and no price of what it does not do.
func TestAnIdleServerHasPlainFigures(t *testing.T) {
	odd := regexp.MustCompile(`\de[-+]\d|about 0s`)
	m := healthy()
	m.begin = text(t, "freshet_query_wait_seconds{lane=\"long\"} 0\n")
	m.end = text(t, "freshet_query_wait_seconds{lane=\"long\"} 5.1e-05\n")
	for _, of := range []func(*moment) finding{queries, smallRequests, disk, lock, starvation} {
		if f := of(m); odd.MatchString(f.fine + f.Because) {
			t.Errorf("%s: %s: %s", f.Name, f.fine, f.Because)
		}
	}
}
