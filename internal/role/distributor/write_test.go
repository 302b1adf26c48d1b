package distributor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/placement"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/buf"
	"github.com/freshet-io/freshet/internal/settings"
)

// noting is an ingester that notes which series of a request it is to write.
type noting struct {
	mu      sync.Mutex
	got     []string
	err     error
	refuses int // samples of each request
	hang    chan struct{}
}

func (n *noting) Push(_ string, r *tsdb.Request, _ *buf.Buf) error {
	if n.hang != nil {
		<-n.hang
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	only := r.Only
	if only == nil {
		for i := range r.Series {
			only = append(only, uint32(i))
		}
	}
	for _, i := range only {
		ls, _ := r.Rules.Resolve(r.Request, &r.Series[i])
		n.got = append(n.got, ls.String())
	}
	if n.err != nil {
		return n.err
	}
	r.Outcome.Written.Samples = len(only) - n.refuses
	if n.refuses > 0 {
		r.Outcome.Refuse(outcome.TooOld, outcome.Counts{Samples: n.refuses})
		r.Outcome.Tell("x", errors.New("the cause"))
	}
	return nil
}

// among has three instances own the shards in turn.
func (w *world) among() map[string]*noting {
	w.Placement = placement.New(1, func(shard uint16) string { return fmt.Sprint(shard % 3) })
	all := map[string]*noting{}
	for _, name := range w.Placement.Instances() {
		all[name] = &noting{}
		w.ingesters[name] = []Ingester{all[name]}
	}
	return all
}

func manySeries() (all []string) {
	for i := range 100 {
		all = append(all, fmt.Sprintf("m{i=%d}", i))
	}
	return all
}

// Each series goes to the owner of its shard, and to nobody else; of what became of the
// parts the answer has the sum.
func TestEachSeriesGoesToItsOwner(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	all := w.among()
	all["1"].refuses = 2
	o := w.mustPush("a", manySeries()...)
	if refused := o.AllRefused(); o.Written.Samples != 98 || refused.Samples != 2 {
		t.Errorf("%+v", o)
	}
	total := 0
	for name, n := range all {
		total += len(n.got)
		if len(n.got) < 20 {
			t.Errorf("instance %s has %d series", name, len(n.got))
		}
	}
	if total != 100 {
		t.Errorf("%d series were written", total)
	}
	owned := slices.Clone(all["0"].got)
	w.mustPush("a", manySeries()...)
	if again := all["0"].got[len(owned):]; !slices.Equal(again, owned) {
		t.Errorf("the same series came to another owner")
	}
	key, err := w.request("m{i=7}").AppendSeriesKey(nil, &w.request("m{i=7}").Series[0], "")
	if err != nil {
		t.Fatal(err)
	}
	if owner := w.Placement.Owner(series.Shard("a", key)); !slices.ContainsFunc(all[owner].got, func(s string) bool { return strings.Contains(s, `i="7"`) }) {
		t.Errorf("instance %s owns m{i=7} and has %v", owner, all[owner].got)
	}
}

// The copies of an HA pair have the same owners.
func TestTheReplicaLabelDoesNotChangeTheOwner(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) { c.HA.Replica = "replica" })
	all := w.among()
	for replica := range 2 {
		var sent []string
		for i := range 30 {
			sent = append(sent, fmt.Sprintf("m{cluster=c,i=%d,replica=%d}", i, replica))
		}
		if o := w.mustPush("a", sent...); o.Written.Samples != 30 {
			t.Fatalf("%+v", o)
		}
		w.now = w.now.Add(time.Minute) // and the other one takes over
	}
	for name, n := range all {
		if half := len(n.got) / 2; half < 3 || !slices.Equal(n.got[:half], n.got[half:]) {
			t.Errorf("instance %s has %v", name, n.got)
		}
	}
}

// One owner that fails has the request come again. The memory is in use until the last one
// is done, whatever has been answered.
func TestMemoryIsInUseUntilTheLastOwnerIsDone(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	all := w.among()
	all["1"].err = errors.New("the disk is full")
	all["2"].hang = make(chan struct{})
	done := make(chan struct{})
	body := buf.Get()
	defer body.Release()
	_, err := w.Push("a", w.request(manySeries()...), body, func() { close(done) })
	var again *RetryError
	if !errors.As(err, &again) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	select {
	case <-done:
		t.Error("the memory was given back while an ingester has it")
	default:
	}
	close(all["2"].hang)
	<-done
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Refused[unavailable] != 100 || books.Difference != 0 {
		t.Errorf("the books: %+v", books)
	}
}
