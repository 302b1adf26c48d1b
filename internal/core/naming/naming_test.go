package naming

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/series"
)

const now = 1_795_228_020_000

// push returns a push of tenant a with a series of each kind, all named m.
func push(t *testing.T, kinds ...series.Kind) []byte {
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte("a"), Producer: 1, Incarnation: 1, Sequence: 1, Second: now / 1000})
	for _, kind := range kinds {
		key := series.AppendKey(nil, kind, labels.FromStrings("__name__", "m"))
		w.Add(series.Shard("a", key), &batch.Increment{Key: key, Samples: 1, Value: 1})
	}
	p := entry.Push{Producer: 1, Incarnation: 1, Sequence: 1, Shape: 1}
	for _, b := range w.End() {
		p.Batches = p.Batches.Append(b.Bytes)
	}
	return entry.AppendPush(nil, &p)
}

// stored returns the names of the series in a push, by kind, and checks that each is in the shard of its key.
func stored(t *testing.T, push []byte) map[series.Kind]string {
	t.Helper()
	names := map[series.Kind]string{}
	p, err := entry.ParsePush(push)
	if err != nil {
		t.Fatal(err)
	}
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		for key := range batch.Series(b) {
			names[series.Kind(key[0])] = string(series.Name(key))
			if series.Shard("a", key) != h.Shard {
				t.Errorf("series %q is in shard %d", key, h.Shard)
			}
		}
	}
	return names
}

// A name belongs to the kind that claims it first. Series of another kind get another name, and the same push
// always becomes the same bytes. Names that are in use are claimed again after some minutes.
func TestNamesOfAPush(t *testing.T) {
	shared := catalogue.NewShared()
	at := func(ms int64) *Finder {
		return &Finder{Names: shared, Terms: catalogue.Terms{Now: ms, MaxNames: 10},
			Fits: func(tenant string) bool { return tenant == "a" }}
	}
	claim := func(x *Finder) (kinds []series.Kind, unknown bool) {
		claims, unknown := x.Claims()
		for item := range claims.All() {
			c, err := entry.ParseClaim(item)
			if err != nil {
				t.Fatal(err)
			}
			shared.Claim(&x.Terms, &catalogue.Claim{Tenant: c.Tenant, Name: c.Name, Kind: series.Kind(c.Kind)})
			kinds = append(kinds, series.Kind(c.Kind))
		}
		return kinds, unknown
	}
	both := push(t, series.Gauge, series.Counter)
	x := at(now)
	x.Find(both)
	if kinds, unknown := claim(x); !unknown || !slices.Equal(kinds, []series.Kind{series.Counter, series.Gauge}) {
		t.Errorf("the first push claims %v, and unknown is %v; want the counter before the gauge", kinds, unknown)
	}
	x = at(now + 1)
	if !x.Find(both) {
		t.Error("no series of the push has another name")
	}
	if kinds, unknown := claim(x); len(kinds) > 0 || unknown {
		t.Errorf("known names are claimed: %v", kinds)
	}
	renamed := x.Rename(both)
	if names := stored(t, renamed); names[series.Counter] != "m" || names[series.Gauge] == "m" || len(names) != 2 {
		t.Errorf("the series are stored as %v", names)
	}
	if !slices.Equal(at(now+2).Rename(both), renamed) {
		t.Error("the same push becomes other bytes")
	}
	if x = at(now + 1 + catalogue.ClaimAgain); x.Find(push(t, series.Counter)) {
		t.Error("the owner of a name gets another one")
	}
	if kinds, unknown := claim(x); unknown || !slices.Equal(kinds, []series.Kind{series.Counter}) {
		t.Errorf("after 10 minutes %v are claimed, and unknown is %v", kinds, unknown)
	}
	x = at(now)
	if x.Fits = func(string) bool { return false }; x.Find(push(t, series.Check)) {
		t.Error("a tenant that is not admitted has names")
	}
	if kinds, _ := claim(x); len(kinds) > 0 {
		t.Errorf("a tenant that is not admitted claims %v", kinds)
	}
}
