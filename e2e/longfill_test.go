package e2e

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/answer"
)

// Under load, a node loses its directory. It gets a long history from another node, while the node itself, the node
// that gives its data, and the leader are killed in turn. The fill ends, logs stay bounded, and nothing is lost or
// counted twice. Then the filled node alone has what all have. `make soak` fills 20 GB, with ten kills of each.
// FRESHET_FILL_BYTES and FRESHET_FILL_KILLS choose other numbers.
func TestALongFill(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	size, rate, turns := 40<<20, 2<<20, 1
	if soak {
		size, rate, turns = 20_000_000_000, 50<<20, 10
	}
	size = fromEnvironment(t, "FRESHET_FILL_BYTES", size)
	turns = fromEnvironment(t, "FRESHET_FILL_KILLS", turns)
	l := newLoaded(t, freshet)
	from := writeHistory(t, filepath.Join(l.dirs["a"], "tsdb", firstTenant, "raw"))
	l.foundLoaded() // nodes b and c are filled, so no log begins with the first entry
	for _, n := range nodeNames {
		l.nodes[n].terminate(t)
		l.extra[n] = append(l.extra[n], "--cluster-fill-rate", fmt.Sprint(rate))
	}
	for _, n := range []string{"a", "b"} {
		pad(t, filepath.Join(l.dirs[n], "tsdb", firstTenant, "raw"), int64(size))
	}
	l.begin(nodeNames...)
	l.caughtUp()

	l.start("filled")
	b := l.startBulk("filled", 40_000)
	l.times()
	reach(time.Now().Add(2 * inCI))
	before := l.times()
	l.setParted("c", true)
	l.kill("c")
	l.dirs["c"] = dataDir(t) // the disks of the tests are too small for the sparse files that a fill writes
	delete(l.disks, "c")
	refused := l.trio.start("c")
	select {
	case <-refused.exited:
	case <-time.After(time.Minute):
		t.Fatal("a node that may not be replaced goes on")
	}
	if said := refused.output.String(); !strings.Contains(said, "has another data directory already") ||
		strings.Contains(said, "is filled") {
		t.Errorf("a node that may not be replaced must be refused before it is filled; it says\n%s", said)
	}
	eventually(t, time.Minute, "node c counts as lost", func() error {
		_, err := l.cluster("a", "replace", "c")
		return err
	})
	begun, target := time.Now(), l.trio.start("c")
	lasts := time.Duration(float64(size) / float64(rate) * float64(time.Second))
	var during []time.Duration
	largest := uint64(0)
	kills := 0
	for ; kills < 3*turns; kills++ {
		l.times() // without the requests that waited for a leader
		for at := begun.Add(lasts * time.Duration(kills+1) / time.Duration(3*turns+1)); time.Now().Before(at); {
			reach(time.Now().Add(min(time.Second, time.Until(at))))
			largest = max(largest, l.largestLog("a"))
		}
		during = append(during, l.times()...)
		source := l.fillsFrom("a", "c")
		if source == "" {
			break // on a busy machine, a restart may take longer than the fill
		}
		switch kills % 3 {
		case 0:
			target.signal(t, syscall.SIGKILL)
			<-target.exited
			target = l.trio.start("c")
		case 1:
			l.killed(source)
		default:
			l.killed(l.leads("a"))
		}
	}
	if kills == 0 || soak && kills < 3*turns {
		t.Errorf("node c was ready after %d of %d kills", kills, 3*turns)
	}
	eventually(t, time.Hour, "node c is ready", func() error {
		select {
		case <-target.exited:
			t.Fatalf("node c ended: %v\n%s", target.err, target.output)
		default:
		}
		largest = max(largest, l.largestLog("a"))
		_, err := os.Stat(filepath.Join(target.dataDir, "listening.json"))
		return err
	})
	l.becomesReady("c", target)
	t.Logf("%d bytes were filled in %.0f s, with %d kills; the largest log had %d bytes", size,
		time.Since(begun).Seconds(), kills, largest)
	t.Logf("p99 of %d acknowledgements before: %v; of %d during the fill, but for kills: %v", len(before), p99(before),
		len(during), p99(during))
	if limit := uint64(4 << 30); largest > limit {
		t.Errorf("a log had %d bytes, want at most %d", largest, limit)
	}
	l.caughtUp()
	l.setParted("c", false)
	b.stop()
	b.isStored()
	l.finish(false)

	at := tilesClosed()
	want := l.everything("a", at)
	past := l.history("a", from)
	if len(past) != historySeries {
		t.Errorf("node a has %d series of the history, want %d", len(past), historySeries)
	}
	for _, n := range []string{"a", "b"} {
		l.kill(n)
	}
	if got := l.everything("c", at); !reflect.DeepEqual(got, want) {
		t.Errorf("node c alone has other samples than all nodes had: %d series, want %d", len(got), len(want))
	}
	if got := l.history("c", from); !reflect.DeepEqual(got, past) {
		t.Errorf("node c alone has another history than all nodes had: %d series, want %d", len(got), len(past))
	}
}

// killed kills a node and starts it again. Meanwhile there is no leader.
func (l *loaded) killed(node string) {
	l.t.Helper()
	l.setParted(node, true)
	l.kill(node)
	l.begin(node)
	l.leads(node)
	l.setParted(node, false)
}

// leads waits until a node knows a leader, and returns it.
func (l *loaded) leads(at string) (leader string) {
	l.t.Helper()
	eventually(l.t, time.Minute, "there is a leader", func() error {
		s, err := l.node(at).clusterState()
		if leader = s.Leader; err == nil && leader == "" {
			err = fmt.Errorf("none leads")
		}
		return err
	})
	return leader
}

// largestLog returns the size of the largest log of a node in bytes, or 0 if no node tells.
func (l *loaded) largestLog(at string) (size uint64) {
	var all answer.Cluster
	_ = l.node(at).ask("/api/v1/status/cluster", nil, &all) // fails while the node is killed
	for _, n := range all.Nodes {
		if n.LogBytes != nil {
			size = max(size, *n.LogBytes)
		}
	}
	return size
}

// p99 returns the 99th percentile.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100].Round(100 * time.Microsecond)
}

const historySeries = 1000

// writeHistory writes a block of TSDB into a store that is not open. It returns the time of the block's first sample.
func writeHistory(t *testing.T, store string) (from time.Time) {
	t.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), store, tsdb.DefaultBlockDuration)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	from = time.Now().Add(-26 * time.Hour).Truncate(2 * time.Hour)
	samples := w.Appender(t.Context())
	for i := range historySeries {
		series := labels.FromStrings("__name__", "history", "i", fmt.Sprint(i))
		for minute := range 120 {
			at := from.Add(time.Duration(minute) * time.Minute).UnixMilli()
			if _, err := samples.Append(0, series, at, float64(i*minute)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := samples.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return from
}

// pad gives the block of a store a size in bytes, by sparse chunk files without chunks.
func pad(t *testing.T, store string, size int64) {
	t.Helper()
	const fileBytes = 512 << 20                             // TSDB maps a whole chunk file into memory
	begin := binary.BigEndian.AppendUint32(nil, 0x85BD40DD) // see TSDB's docs/format/chunks.md
	begin = append(begin, 1, 0, 0, 0)
	blocks, err := filepath.Glob(filepath.Join(store, "*", "chunks"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("the store has the blocks %v, error %v, want one", blocks, err)
	}
	for i, left := 2, size; left > 0; i, left = i+1, left-fileBytes {
		path := filepath.Join(blocks[0], fmt.Sprintf("%06d", i))
		err := os.WriteFile(path, begin, 0o600)
		if err == nil {
			err = os.Truncate(path, max(int64(len(begin)), min(left, fileBytes)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// history returns the samples of the history that a node has, whether it reaches the others or not.
func (l *loaded) history(node string, from time.Time) map[string]string {
	l.t.Helper()
	return l.stored(node, `history[2h]`, from.Add(2*time.Hour))
}
