package window

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// rules is a resolver that gives several contexts one series, as configured rules would: names that
// begin with "ms." have a scale, tags are sources of a merged gauge, and names that begin with "classic"
// have classic buckets.
type rules struct{ resolver }

var classicPolicy = series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1, 10}}

func (r *rules) ResolveMetric(m *dogstatsd.Metric) Resolution {
	name, scaled := bytes.CutPrefix(m.Name, []byte("ms."))
	kind := kinds[m.Type]
	if r.UpDown(m) {
		kind = series.UpDown
	}
	resolved := r.resolve(kind, append([]byte("m_"), name...), nil)
	resolved.Source = uint64(len(m.Tags))
	if scaled {
		resolved.Scale = 0.001
	}
	if bytes.HasPrefix(name, []byte("classic")) {
		resolved.Policy = &classicPolicy
	}
	return resolved
}

// Two rules make one series: a.ms becomes a with a scale, and a.s becomes a without one. The scale of
// the first context used to apply to both.
func TestEachContextHasItsScale(t *testing.T) {
	table := New(&rules{}, Options{IdleWindows: 300})
	table.Start(at(0))
	for window := range 2 { // resolved, then remembered
		now := float64(window)
		send(t, table, at(now), "ms.a:1000|c", "a:1|c", fmt.Sprintf("ms.a:500|c|T%d", second))
		expect(t, flush(t, table, at(now+1)), fmt.Sprintf("counter m_a{} n=1 0.5 T=%+d", -window), "counter m_a{} n=2 2")
	}
	var spellings []string
	for i := range maxSpellings + 2 { // two more than the table remembers
		spellings = append(spellings, fmt.Sprintf("ms.b:1000|c|c:%d", i))
	}
	table = New(&rules{}, Options{IdleWindows: 300, OriginLabels: true})
	table.Start(at(0))
	send(t, table, at(0), spellings...)
	expect(t, flush(t, table, at(1)), fmt.Sprintf("counter m_b{} n=%d %d", len(spellings), len(spellings)))
}

// When two sources of a merged gauge took turns, each line used to make a new series, and the bound
// never applied.
func TestSpellingsOfAMergedGaugeAreBounded(t *testing.T) {
	table := New(&rules{}, Options{IdleWindows: 300, OriginLabels: true})
	table.Start(at(0))
	for i := range 100 {
		send(t, table, at(0.5), fmt.Sprintf("a:%d|g|#x|c:%d", i, i), fmt.Sprintf("a:%d|g|#yy|c:%d", 1000+i, i))
	}
	expect(t, flush(t, table, at(1)), "gauge m_a{} n=100 1099", "gauge m_a{} n=100 99")
	if s := table.Stats(); s.Series != 2 || s.Contexts != 2*maxSpellings || s.Respellings != 2*(100-maxSpellings) {
		t.Errorf("%+v", s)
	}
	for window := 1; window < 2*300+2*sweepShare; window++ {
		flush(t, table, at(float64(window)+1))
	}
	if s := table.Stats(); s.Series != 0 || s.Contexts != 0 {
		t.Errorf("after all series were idle: %+v, want none", s)
	}
}

// A window used to keep every line that had its own time, and to search these lines one by one:
// 5,000 lines of one gauge made a batch too large for the journal, and 100,000 of one counter
// stopped the reader for seconds.
func TestTimesOfASeriesAreBounded(t *testing.T) {
	const lines = 5000
	for _, test := range []struct{ kind, line string }{
		{"counter", "a:1|c|T%d"},
		{"gauge", "a:1|g|T%d"},
		{"check", "_sc|a|1|d:%d"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			table := New(&resolver{}, Options{IdleWindows: 300})
			table.Start(at(0))
			for i := range lines {
				send(t, table, at(0.5), fmt.Sprintf(test.line, second-i*7919%lines)) // in random order
			}
			send(t, table, at(0.6), fmt.Sprintf(test.line, second)) // a known time takes more values
			if got := flush(t, table, at(1)); len(got) != maxTimed || !strings.Contains(strings.Join(got, "\n"), "n=2") {
				t.Errorf("%d increments", len(got))
			}
			if s := table.Stats(); s.Samples != maxTimed+1 || s.TimedRefused != lines-maxTimed {
				t.Errorf("%+v", s)
			}
			if kept := cap(table.extras[1].windows[0].timed); kept > keepTimed {
				t.Errorf("the series keeps memory for %d timed values, want at most %d", kept, keepTimed)
			}
		})
	}
}

// A gauge whose time was more than a minute ahead used to be stored at another time.
func TestTimesTooFarAheadAreRefused(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5),
		fmt.Sprintf("g:1|g|T%d\ng:2|g|T%d", second+60, second+61),
		fmt.Sprintf("_sc|s|1|d:%d\n_sc|s|2|d:%d", second+60, second+9000),
		fmt.Sprintf("c:3|c|T%d", second+3600)) // joins the last tile that is open
	expect(t, flush(t, table, at(1)), "check s{} n=1 1 T=+60", "counter c{} n=1 3 T=+3600", "gauge g{} n=1 1 T=+60")
	if s := table.Stats(); s.Samples != 3 || s.AheadRefused != 2 {
		t.Errorf("%+v", s)
	}
}

// A dead disk can stretch a window for hours, until it has more samples than a batch can count. Then the
// count stays at its maximum.
func TestSamplesSaturate(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5), "a:1|c", fmt.Sprintf("a:1|c|T%d", second))
	table.records.at(1).samples[0], table.extras[1].windows[0].timed[0].samples = math.MaxUint32, math.MaxUint32
	send(t, table, at(0.5), "a:1|c", fmt.Sprintf("a:1|c|T%d", second))
	expect(t, flush(t, table, at(1)), "counter a{} n=4294967295 2", "counter a{} n=4294967295 2 T=+0")
}

// Whatever clients send, the batches of a window can be read to their end, and each sample is in a
// batch or in a counter. Datagrams are separated by a zero byte. The flusher returns its window
// only at every third datagram.
func FuzzWhatIsTakenIsReadBack(f *testing.F) {
	f.Add([]byte("a:1:2:-3|c|@0.1\na:1|c|T1763680000\na:+5|g\x00up.a:-1:2|c|@0.5\n"+
		"up.a:-7|c|T1763680000\x00a:1|g|T9000000000\nclassic:1:2|ms\nms.a:1e308|c\x00_sc|up|1|d:9000000000|#x\nu:x:y|s"),
		true)
	f.Add([]byte("a:1e308:1e308|c\na:1e308|ms|@1e-300\n"+
		"classic:0:0|h|@2.3e-308\x00classic:0:0|h|@2.3e-308\x00a:+1.7e308|g\na:+1.7e308|g"), true)
	f.Add([]byte("a:1|c|T1763680000000\n_sc|up|0|d:1763680000000\na:1|c|T1\na:0:-1e-320|d|#x\na:1|d|#y"), false)
	f.Fuzz(func(t *testing.T, data []byte, relative bool) {
		tenant := limit.New(limit.Config{MaxSeries: 3, MaxSeriesPerMetric: 2}, time.Minute, time.Hour).Tenant("default")
		table := New(&rules{}, Options{IdleWindows: 2, RelativeGauges: relative, OriginLabels: true, Limits: tenant})
		table.Start(at(0))
		var p dogstatsd.Parser
		var held *Window // a closed window that is not flushed yet
		var in, read uint64
		readHeld := func() {
			if held != nil {
				read += readBack(t, held)
				held = nil
			}
		}
		for i, packet := range slices.Collect(bytes.SplitSeq(append(data, 0), []byte{0})) {
			now := at(float64(i))
			p.Reset(packet)
			in += table.packet(&p, now)
			if i%3 == 2 {
				readHeld()
			}
			if w, ok := table.Close(now); ok {
				held = w
			}
		}
		readHeld()
		held, _ = table.Close(at(1e6))
		readHeld()
		s := table.Stats()
		out := s.Samples + s.Overflowed + s.Negative + s.TimedRefused + s.AheadRefused
		for _, refused := range s.LimitRefused {
			out += refused
		}
		if in != out || read != s.Samples || s.Folded > s.Samples {
			t.Errorf(
				"%d samples came, but %d were counted; %d were read back, want %d; %+v", in, out, read, s.Samples, s)
		}
	})
}

// packet counts a datagram as a listener does, and returns the number of samples in it.
func (t *Table) packet(p *dogstatsd.Parser, now int64) (samples uint64) {
	var lines [MaxLines]dogstatsd.Metric
	var values [MaxLines][4]float64
	n := 0
	for {
		line := p.Next()
		if n == MaxLines || line == dogstatsd.End {
			t.Metrics(lines[:n], now)
			n = 0
		}
		switch line {
		case dogstatsd.MetricLine:
			samples += uint64(max(1, len(p.Metric.Values)))
			lines[n] = p.Metric
			lines[n].Values = append(values[n][:0], p.Metric.Values...)
			n++
		case dogstatsd.CheckLine:
			samples++
			t.Check(&p.Check, now)
		case dogstatsd.End:
			return samples
		}
	}
}

// readBack flushes a window, checks that its batches hold as many samples as Series reports, and returns
// that number.
func readBack(t *testing.T, w *Window) (read uint64) {
	var told uint64
	for s := range w.Series() {
		told += s.Samples
	}
	increments(t, w, func(inc *batch.Increment) { read += uint64(inc.Samples) })
	if read != told {
		t.Errorf("%d samples in the batches, want %d as in Series", read, told)
	}
	return read
}

// A context of more than 64 KiB, which a stream can bring, is counted but not remembered. Its
// series leaves the table once it is idle.
func TestALongContextIsNotRemembered(t *testing.T) {
	table := New(&plain{}, Options{IdleWindows: 2})
	table.Start(at(0))
	name := strings.Repeat("x", 70_000)
	for range 3 {
		send(t, table, at(0.5), name+":1|c")
	}
	w, _ := table.Close(at(1))
	if got, _ := portions(t, w, math.MaxInt); len(got) != 1 || slices.Collect(maps.Values(got))[0] != 3 {
		t.Errorf("%d series", len(got))
	}
	if s := table.Stats(); s.Series != 1 || s.Contexts != 0 || s.Respellings != 3 {
		t.Errorf("%+v", s)
	}
	for window := range 2 * sweepShare {
		flush(t, table, at(float64(window)+2))
	}
	if s := table.Stats(); s.Series != 0 {
		t.Errorf("after the series was idle: %+v, want no series", s)
	}
}
