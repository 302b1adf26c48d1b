package cataloguefile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/series"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func metrics(t *testing.T, f *File, want ...catalogue.Metric) {
	t.Helper()
	got, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	hits  = catalogue.Metric{Tenant: "a", Name: "hits", Base: "hits", Raw: "hits", Kind: series.Counter, LastSeen: 1}
	timer = catalogue.Metric{
		Tenant: "a", Name: "t_timer", Base: "t", Raw: "t.\xff", Kind: series.Timer, Classic: true, Buckets: "0.1,1",
		Unit: "seconds", Help: "ü", First: 1_600_000_000_000, LastSeen: 1_700_000_000_000,
	}
	other = catalogue.Metric{Tenant: "b", Name: "hits", Base: "hits", Raw: "hits", Kind: series.Gauge, LastSeen: 2}
)

func TestMetricsOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.db")
	f := open(t, path)
	metrics(t, f)
	must(t, f.Save([]catalogue.Metric{other, timer, hits}))
	must(t, f.Close())

	f = open(t, path)
	metrics(t, f, hits, timer, other)
	newer := hits
	newer.LastSeen, newer.Help = 5, "now with help"
	must(t, f.Save([]catalogue.Metric{newer}))
	metrics(t, f, newer, timer, other)
	must(t, f.Save(nil))
}

func TestForget(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "catalogue.db"))
	must(t, f.Save([]catalogue.Metric{hits, timer, other}))
	unknown := catalogue.Metric{Tenant: "c", Name: "x"}
	must(t, f.Forget([]catalogue.Metric{hits, unknown}))
	metrics(t, f, timer, other)
	must(t, f.Forget(nil))
}

// If the database refuses a name, Save writes none of the names, and its error gives the refused
// name.
func TestSaveIsAllOrNone(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "catalogue.db"))
	long := hits
	long.Name = strings.Repeat("x", bbolt.MaxKeySize+1)
	err := f.Save([]catalogue.Metric{hits, long})
	if err == nil || !strings.Contains(err.Error(), "xxx") {
		t.Errorf("got %v", err)
	}
	metrics(t, f)
}

func TestDamagedFileDoesNotKeepFromStarting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.db")
	f := open(t, path)
	must(t, f.Save([]catalogue.Metric{hits}))
	must(t, f.Close())
	file, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.ReplaceAll(file, []byte(`{"base":`), []byte(`{"base" `)), 0o666))

	var log bytes.Buffer
	f, err = Open(path, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	defer f.Close()
	if !strings.Contains(log.String(), path+".damaged") {
		t.Errorf("the log does not name %s.damaged: %s", path, &log)
	}
	metrics(t, f)
	must(t, f.Save([]catalogue.Metric{hits}))
	metrics(t, f, hits)
}

// The catalogue in memory loads exactly the metrics that were saved, with the kinds that own them.
func TestWithTheCatalogueInMemory(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "catalogue.db"))
	before := catalogue.New(10)
	claim := func(c *catalogue.Catalogue, k series.Kind) string {
		name, _ := c.Resolve(1, &catalogue.Claim{Tenant: "a", Name: "x", Raw: []byte("x"), Kind: k})
		return name
	}
	gauge, counter := claim(before, series.Gauge), claim(before, series.Counter)
	must(t, f.Save(before.Dirty()))

	after := catalogue.New(10)
	loaded, err := f.Load()
	must(t, err)
	if refused := after.Load(loaded); refused != 0 {
		t.Errorf("%d metrics refused", refused)
	}
	// Without the file, the first claim would decide, and this time the counter claims first.
	if c, g := claim(after, series.Counter), claim(after, series.Gauge); c != counter || g != gauge {
		t.Errorf("the counter's name is %s, want %s; the gauge's name is %s, want %s", c, counter, g, gauge)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"base":"x","raw":"eA==","kind":1,"last_seen":5}`))
	f.Add([]byte(`{"kind":300}`))
	f.Fuzz(func(t *testing.T, v []byte) {
		if m, err := decode("a", "x", v); err == nil && (m.Tenant != "a" || m.Name != "x") {
			t.Fatalf("became %+v", m)
		}
	})
}

// A bit of the file flips, before it is opened or while it is open. Nothing panics, and names can be saved.
func TestRandomFlips(t *testing.T) {
	from := filepath.Join(t.TempDir(), "catalogue.db")
	f := open(t, from)
	for i := range 50 {
		m := hits
		m.Name = fmt.Sprint("name", i)
		must(t, f.Save([]catalogue.Metric{m}))
	}
	must(t, f.Close())
	whole, err := os.ReadFile(from)
	must(t, err)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "catalogue.db")
		bad := bytes.Clone(whole)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		whileOpen := seed%2 == 1
		if whileOpen {
			must(t, os.WriteFile(path, whole, 0o600))
		} else {
			must(t, os.WriteFile(path, bad, 0o600))
		}
		f, err := Open(path, slog.New(slog.DiscardHandler))
		must(t, err)
		if whileOpen {
			open, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = open.WriteAt(bad, 0)
			must(t, errors.Join(err, open.Close()))
		}
		_, _ = f.Load() // an error says that the file is damaged
		must(t, f.Save([]catalogue.Metric{hits}))
		must(t, f.Close())
	}
}
