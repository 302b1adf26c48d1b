package window

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// portions flushes a window in portions of the given number of bytes. It returns the samples of
// each series and the number of portions.
func portions(t testing.TB, w *Window, bytes int) (samples map[string]uint64, count int) {
	t.Helper()
	var out batch.Writer
	var r batch.Reader
	samples = map[string]uint64{}
	for done := false; !done; count++ {
		out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second, Sequence: uint64(count)})
		done = w.Flush(&out, bytes)
		for _, b := range out.End() {
			if err := r.Reset(b.Bytes); err != nil {
				t.Fatal(err)
			}
			for inc := r.Next(); inc != nil; inc = r.Next() {
				samples[string(inc.Key)] += uint64(inc.Samples)
			}
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
		}
	}
	return samples, count
}

// nameOf returns the name in the key of a series without tags.
func nameOf(key string) string { return string(series.Name([]byte(key))) }

// A window of a million series is flushed in portions, so that memory never holds all of it as
// batches. The table gets the window back after the last portion.
func TestAWindowIsFlushedInPortions(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	for i := range 1000 {
		send(t, table, at(0.5), fmt.Sprintf("m%d:1|c", i), fmt.Sprintf("m%d:1:2|g|T%d", i%10, second-5))
	}
	w, _ := table.Close(at(1))
	var out batch.Writer
	out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second})
	if w.Flush(&out, 1000) || out.Size() < 1000 || out.Size() > 1100 {
		t.Fatalf("a portion of %d bytes, want about 1000", out.Size())
	}
	send(t, table, at(1.5), "m0:1|c")
	if _, ok := table.Close(at(2)); ok {
		t.Fatal("the table got a window back before it was flushed")
	}
	first := uint64(0)
	for _, b := range out.End() {
		first += b.Samples
	}
	rest, count := portions(t, w, 1000)
	total := first
	for _, n := range rest {
		total += n
	}
	if total != 1000+2*1000 || count < 20 {
		t.Errorf("%d samples in %d portions, want 3000 in more than 20", total, count+1)
	}
	expect(t, flush(t, table, at(3)), "counter m0{} n=1 1")
}

// InUse yields each series once in 1,024 windows, no matter when the series first came.
func TestEachSeriesIsInUseOnceInAWhile(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 1e6})
	table.Start(at(0))
	told := map[string]int{}
	most := 0
	for window := range 3 * noteWindows {
		for i := range 50 {
			send(t, table, at(float64(window)), fmt.Sprintf("often%d:1|c", i))
		}
		if window%100 == 0 {
			send(t, table, at(float64(window)), "rare:1|c")
		}
		w, _ := table.Close(at(float64(window) + 1))
		n := 0
		for key := range w.InUse() {
			told[nameOf(string(key))]++
			n++
		}
		if window > 0 {
			most = max(most, n)
		}
		render(t, w)
	}
	for name, n := range told {
		if n < 3 || n > 4 {
			t.Errorf("InUse yielded %s %d times in three rounds, want 3 or 4", name, n)
		}
	}
	if len(told) != 51 || most > 2 {
		t.Errorf("InUse yielded %d series, up to %d in one window, want 51, at most 2", len(told), most)
	}
}

// A series may reuse the record of a series that left. InUse yields such a new series in its first
// window. The series used to wait until it was the record's turn.
func TestANewSeriesIsInUseAtOnce(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 2})
	table.Start(at(0))
	told := map[string]int{}
	for window := range 2 * sweepShare {
		switch window {
		case 0:
			send(t, table, at(float64(window)), "old:1|c")
		case 2*sweepShare - 2, 2*sweepShare - 1:
			send(t, table, at(float64(window)), "new:1|c")
		}
		if w, _ := table.Close(at(float64(window) + 1)); w != nil {
			for key := range w.InUse() {
				told[nameOf(string(key))]++
			}
			render(t, w)
		}
	}
	if table.last != 1 || told["old"] != 1 || told["new"] != 1 {
		t.Errorf("%d records, in use: %v; want 1, and series old and new once each", table.last, told)
	}
}

// TestTableAndFlusherAgainstAModel uses the table as a listener and a flusher do, and compares it with a
// map. Contexts come, go and come again. Windows stretch while the flusher has one. New rules bring
// another table. Series get timed values in some windows. Each window must agree with the map, and
// unused places must be given up.
func TestTableAndFlusherAgainstAModel(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		tenant := limit.New(limit.Config{}, 10*time.Second, time.Hour).Tenant("default")
		fresh := func(now int64) *Table {
			table := New(&plain{}, Options{IdleWindows: 3, Limits: tenant})
			table.Start(now)
			return table
		}
		type handed struct { // to the flusher
			window *Window
			want   map[string]uint64
			of     *Table
			last   bool // of its table
		}
		table := fresh(at(0))
		open := map[string]uint64{}
		var queue []handed
		busy := func() bool {
			return slices.ContainsFunc(queue, func(h handed) bool { return h.of == table && h.window != nil })
		}
		take := func(now int64) {
			for _, h := range queue {
				if h.window != nil {
					if got, _ := portions(t, h.window, 1+rng.IntN(3000)); !maps.Equal(got, h.want) {
						t.Fatalf("seed %d: got %v\nwant %v", seed, got, h.want)
					}
				}
				if h.last {
					h.of.Release(now)
				}
			}
			queue = nil
		}
		hand := func(now int64, last bool) {
			free := !busy()
			w, ok := table.Close(now)
			if ok != free || ok && (w == nil) != (len(open) == 0) {
				t.Fatalf("seed %d: Close reports %t, want %t, with a window only if samples came", seed, ok, free)
			}
			if !ok {
				return
			}
			queue = append(queue, handed{w, keysOf(open), table, last})
			clear(open)
			if last {
				table = fresh(now)
			}
		}
		for window := range 600 {
			now := at(float64(window))
			for range rng.IntN(300) {
				id := window/50*40 + rng.IntN(200)
				line := fmt.Sprintf("m%d:1|c|#b,a", id)
				switch rng.IntN(8) {
				case 0:
					line += fmt.Sprintf("|T%d", second-rng.IntN(5))
				case 1:
					line = fmt.Sprintf("m%d:1|ms|#b,a", id)
				case 2:
					line = fmt.Sprintf("m%d:x%d|s|#b,a", id, rng.IntN(9))
				}
				send(t, table, now, line)
				open[strings.SplitN(line, "|", 3)[1]+nameFrom(line)]++
			}
			if rng.IntN(3) > 0 {
				take(now)
			}
			hand(now+1e9, rng.IntN(20) == 0)
		}
		for window := 600; window < 600+4*sweepShare; window++ {
			take(at(float64(window)))
			hand(at(float64(window)+1), false)
		}
		tenant.Room(at(1000)) // forgets unclaimed series
		if s, r := table.Stats(), tenant.Report(at(1000)); s.Contexts != 0 || s.Series != 0 || r.Series != 0 {
			t.Errorf("seed %d: after all series were idle: %+v, %d places, want none", seed, s, r.Series)
		}
		if slices.ContainsFunc(table.extras, func(x *extra) bool { return x != nil }) {
			t.Errorf("seed %d: the table keeps buckets, sets or times of series that left", seed)
		}
	}
}

// nameFrom returns the name in a line.
func nameFrom(line string) string { return line[:strings.IndexByte(line, ':')] }

// keysOf replaces the lines, each a type and a name, by keys with the tags b,a.
func keysOf(lines map[string]uint64) map[string]uint64 {
	keys := map[string]uint64{}
	for line, n := range lines {
		at := strings.IndexByte(line, 'm')
		kind := series.Counter
		if strings.HasPrefix(line, "ms") {
			kind, at = series.Timer, 2
		} else if line[0] == 's' {
			kind = series.Set
		}
		keys[string((&plain{}).resolve(kind, []byte(line[at:]), []byte("b,a")).Key)] += n
	}
	return keys
}

// The flusher reads a window while the reader fills the other one, removes idle series and
// reuses their memory for new ones. Run it with -race.
func TestAFlusherReadsWhileTheReaderGoesOn(t *testing.T) {
	const windows, most = 300, 200
	tenant := limit.New(limit.Config{}, time.Minute, time.Hour).Tenant("default")
	table := New(&plain{}, Options{IdleWindows: 2, Limits: tenant})
	table.Start(at(0))
	closed := make(chan *Window)
	read := make(chan uint64)
	go func() {
		var samples uint64
		for w := range closed {
			for key := range w.InUse() {
				_ = series.Name(key)
			}
			counted, _ := portions(t, w, 2000)
			for key, n := range counted {
				if !strings.HasPrefix(nameOf(key), "m") {
					t.Errorf("series %q", key)
				}
				samples += n
			}
		}
		read <- samples
	}()
	hand := func(now int64) {
		if w, ok := table.Close(now); ok && w != nil {
			closed <- w
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for window := range windows {
		now := at(float64(window))
		for range most {
			id := window + rng.IntN(100)
			switch rng.IntN(4) {
			case 0: // a series that was not in the window being read
				send(t, table, now, fmt.Sprintf("m%d:1|c|T%d", id, second))
			case 1:
				send(t, table, now, fmt.Sprintf("m%d:1|ms|x:ab,1,%d", id, rng.IntN(1000)+1))
			default:
				send(t, table, now, fmt.Sprintf("m%d:1|c", id))
			}
		}
		hand(now + 1e9)
	}
	for table.windows[1-table.open].flushing.Load() {
		runtime.Gosched()
	}
	hand(at(windows + 1))
	close(closed)
	if got := <-read; got != windows*most {
		t.Errorf("read %d samples of %d", got, windows*most)
	}
}
