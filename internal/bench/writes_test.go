package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestBenchRemoteWriteMistakesSayWhatToDo(t *testing.T) {
	for args, want := range map[string]string{
		"--version 3":   "version 3 of remote write: must be 1 or 2",
		"--series 0":    "0 series: must be 1 to 10000000",
		"--labels 6":    "6 labels: must be 7 to 50",
		"--batch 0":     "0 samples a request: must be 1 to 100000",
		"--new-share 2": "share of new series: must be 0 to 1, got 2",
		"--rate fast":   "is not a rate; write a number of samples a second, or max",
		"--rounds 1":    "--rounds = 1: must be 2 or more",
		"--rounds 0":    "--rounds = 0: needs a --duration",
		"--rounds 200000": "--rounds = 200000: the rounds reach back more than 720h0m0s if they are " +
			"15s apart; choose a shorter --interval",
		"--connections 0":                     "--connections = 0: must be 1 to 1000",
		"--interval 0s":                       "is too short; write at least 1ms",
		"--live --rate 10":                    "--live and --rate: give only one of them",
		"--server http://127.0.0.1:1 -- --x":  "are only for a receiver that bench starts",
		"-- --data-dir=x":                     "--data-dir: bench cannot start a receiver with this flag",
		"now":                                 "put flags for the receiver after --",
		"--duration 1":                        "1",
		"--server http://127.0.0.1:1 --batch": "flag needs an argument: --batch",
	} {
		code, out, said := freshet(t, append([]string{"bench", "remote-write"}, strings.Fields(args)...)...)
		if code != command.Usage || out != "" || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, output %q, errors %q; want exit code %d, no output, errors with %q",
				args, code, out, said, command.Usage, want)
		}
	}
}

func TestBenchRemoteWriteNeedsItsServer(t *testing.T) {
	code, _, said := freshet(t, "bench", "remote-write", "--server", "http://127.0.0.1:1", "--series", "10")
	if code != command.Failure || !strings.Contains(said, "ask http://127.0.0.1:1") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

// However the number of samples is set, the times of the samples end at about the present, so that a
// server accepts them. With --live, the times begin at the present.
func TestBenchRemoteWriteTimes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*writeBench)
		rounds int
		back   time.Duration // time from the first sample to now
	}{
		"rounds":              {func(b *writeBench) { b.rounds = 60 }, 60, 15 * time.Minute},
		"duration and rate":   {func(b *writeBench) { b.duration, b.rate = 10*time.Second, 300_000 }, 32, 8 * time.Minute},
		"duration, flat out":  {func(b *writeBench) { b.duration = 10 * time.Second }, 502, 7530 * time.Second},
		"more than has room":  {func(b *writeBench) { b.duration, b.load.Series = time.Hour, 1000 }, 172_800, longestSpan},
		"live for a duration": {func(b *writeBench) { b.live, b.duration = true, time.Minute }, 5, 0},
		"live rounds":         {func(b *writeBench) { b.live, b.rounds = true, 3 }, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := writeBench{load: remoteload.Standard()}
			b.writer.Connections = 1
			c.change(&b)
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
			back := time.Since(time.UnixMilli(b.load.Begin))
			if b.rounds != c.rounds || back < c.back || back > c.back+time.Minute {
				t.Errorf("got %d rounds, the first %v ago; want %d, the first %v ago", b.rounds, back, c.rounds, c.back)
			}
			if want := 100_000.0 / 15; b.live && math.Abs(b.rate-want) > 1 {
				t.Errorf("got %g samples a second, want %g", b.rate, want)
			}
		})
	}
}

// costOfNew finds 5 us for a new series and 1 us for a sample, whatever share of the series is new
// in later rounds.
func TestCostOfNewSeries(t *testing.T) {
	part := func(samples, news uint64) (remoteload.Totals, float64) {
		return remoteload.Totals{Samples: samples, NewSeries: news}, float64(samples)*1e-6 + float64(news)*5e-6
	}
	first, firstCost := part(1000, 1000)
	for _, news := range []uint64{0, 100, 9000} {
		rest, restCost := part(10_000, news)
		if got := costOfNew(first, firstCost, rest, restCost); math.Abs(got-5e-6) > 1e-9 {
			t.Errorf("with %d new series in later rounds, a new series costs %g, want 5e-6", news, got)
		}
	}
	rest, restCost := part(10_000, 10_000)
	if got := costOfNew(first, firstCost, rest, restCost); got != 0 {
		t.Errorf("with only new series, a new series costs %g, want 0, since the cost is unknown", got)
	}
}

// All acknowledged samples must be found, and no others.
func TestBenchRemoteWriteProves(t *testing.T) {
	names := uint64(len(remoteload.Names()))
	for name, c := range map[string]struct {
		written         uint64
		samples, series uint64 // found for each name
		want            string
	}{
		"all is there": {60 * names, 60, 10, ""},
		"a sample is missing": {60 * names, 59, 10,
			fmt.Sprintf("%d samples were acknowledged, but %d are found", 60*names, 59*names)},
		"a sample is there that was not written": {60 * names, 61, 10, "are found"},
		"a series is missing": {60 * names, 60, 9,
			fmt.Sprintf("all samples of %d series were acknowledged, but %d series are found", 10*names, 9*names)},
		"refused samples need not be there": {50 * names, 50, 9, ""},
		"nothing is found":                  {60 * names, 0, 0, "but 0 are found"},
		"refused samples are there anyway":  {50 * names, 60, 10, "are found"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query().Get("query")
				if r.Header.Get("X-Scope-OrgID") != "team" || r.URL.Query().Get("time") != "1795000075.000" ||
					!strings.Contains(q, `{job="bench-1-1795000000000"}[90000ms]`) {
					t.Errorf("bench requested %s as the tenant %q, want the tenant team, and the time and the job of "+
						"the run",
						r.URL, r.Header.Get("X-Scope-OrgID"))
				}
				v := c.samples
				if strings.HasPrefix(q, "count(") {
					v = c.series
				}
				result := []any{}
				if v > 0 {
					result = append(result, map[string]any{"value": []any{1, fmt.Sprint(v)}})
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"result": result}})
			}))
			defer server.Close()
			b := &writeBench{load: remoteload.Standard(), tenant: "team"}
			b.load.Begin = 1_795_000_000_000
			m := writeMeasurement{writeBench: b, server: apiclient.Server{Address: server.URL}}
			if err := b.aim(m.server); err != nil {
				t.Fatal(err)
			}
			r := writeRun{Rounds: 6, SentSamples: 60 * names, SentSeries: 10 * names, WrittenSamples: c.written}
			err := m.prove(t.Context(), &r)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
		})
	}
}
