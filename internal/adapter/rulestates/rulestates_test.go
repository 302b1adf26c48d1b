package rulestates

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/rulestate"
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

func (f *File) save(t *testing.T, tenant string, c rulestate.Changes) {
	t.Helper()
	if err := f.Save(tenant, c); err != nil {
		t.Fatal(err)
	}
}

// holds compares the slots of a tenant's groups, in seconds, and its senders.
func (f *File) holds(t *testing.T, tenant, senders string, want ...int64) {
	t.Helper()
	groups, kept, err := f.Load(tenant)
	if err != nil {
		t.Fatal(err)
	}
	var slots []int64
	for _, g := range groups {
		slots = append(slots, g.Slot.Unix())
	}
	slices.Sort(slots)
	if !slices.Equal(slots, want) || string(kept) != senders {
		t.Errorf("tenant %s has the slots %v and the senders %q; want %v and %q", tenant, slots, kept, want, senders)
	}
}

func at(file, name string, second int64) rulestate.Group {
	return rulestate.Group{File: file, Name: name, Interval: time.Second, Slot: time.Unix(second, 0).UTC()}
}

func TestStatesOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	f := open(t, path)
	f.holds(t, "a", "")
	long := strings.Repeat("x", 100_000) // longer than keys of bbolt
	f.save(t, "a", rulestate.Changes{
		Groups: []rulestate.Group{at("f", "one", 1), at("f", "two", 2), at(long, "one", 3)}, Senders: []byte("senders"),
	})
	f.save(t, "b", rulestate.Changes{Groups: []rulestate.Group{at("f", "one", 4)}})
	f.save(t, "a", rulestate.Changes{
		Groups: []rulestate.Group{at("f", "one", 5)},
		Gone:   []rulestate.Key{{File: "f", Name: "two"}, {File: "f", Name: "unknown"}},
	})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Error(err)
	}
	f = open(t, path)
	f.holds(t, "a", "senders", 3, 5)
	f.holds(t, "b", "", 4)
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	f := open(t, path)
	f.save(t, "a", rulestate.Changes{Groups: []rulestate.Group{at("f", "one", 1)}})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if Check(path) == nil {
		t.Error("the damaged file passes the check")
	}
	var log bytes.Buffer
	f, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.holds(t, "a", "")
	if !strings.Contains(log.String(), path+".damaged") {
		t.Errorf("the log does not name %s.damaged: %s", path, &log)
	}
}

// A bit of the file flips, before it is opened or while it is open. Nothing panics, and the states can be saved.
func TestRandomFlips(t *testing.T) {
	from := filepath.Join(t.TempDir(), "rules.db")
	f := open(t, from)
	for i := range int64(20) {
		f.save(t, "a", rulestate.Changes{Groups: []rulestate.Group{at("f", strings.Repeat("x", int(i*100)), i)}})
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "rules.db")
		bad := bytes.Clone(whole)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		whileOpen := seed%2 == 1
		first := bad
		if whileOpen {
			first = whole
		}
		if err := os.WriteFile(path, first, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if whileOpen {
			overwrite(t, path, bad)
		}
		_, _, _ = f.Load("a") // an error says that the file is damaged
		f.save(t, "b", rulestate.Changes{Groups: []rulestate.Group{at("f", "one", 4)}})
		f.holds(t, "b", "", 4)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite changes the bytes of a file that is open.
func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
