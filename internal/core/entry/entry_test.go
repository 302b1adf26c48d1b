package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/sender"
)

var update = flag.Bool("update", false, "write testdata/golden")

const clock = 1_795_228_020_250

// examples returns an entry of each kind and form.
func examples() map[string]Entry {
	batches := List{}.Append([]byte("a batch")).Append(bytes.Repeat([]byte("b"), 200))
	first := AppendPush(nil, &Push{Producer: 1 << 63, Incarnation: 2, Sequence: 3, Stream: 4, Shape: 1, Batches: batches})
	again := AppendPush(nil, &Push{Producer: 7, Incarnation: 8, Sequence: 1 << 40, Shape: 2, Again: true})
	shards := Shards{}
	for _, shard := range []uint16{0, 63, 64, 1023} {
		shards.Add(shard)
	}
	request := Request{
		Tenant: "default", Arrival: clock, Window: 1_800_000, MaxSeries: 100_000, MaxTenants: 100,
		Sender: sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.1:0"), Agent: "Prometheus/3.5.0"},
		Form:   RemoteWrite2, Body: []byte("a body"),
	}
	unknown := Request{Tenant: strings.Repeat("t", 255), Form: RemoteWrite1, Body: []byte{0}}
	pair := request
	pair.Sender = sender.Sender{Addr: netip.MustParseAddrPort("[2001:db8::1]:0")}
	pair.Pair = Pair{Cluster: "eu", Replica: "b", Timeout: 30_000}
	deltas := request
	deltas.Hash = 0x0123456789abcdef
	return map[string]Entry{
		"windows": {
			Kind:    KindWindows,
			Shape:   1,
			Windows: Windows{Clock: clock, MaxTenants: 1000, Pushes: List{}.Append(first).Append(again)},
		},
		"windows_leave": {Kind: KindWindows, Shape: 1, Windows: Windows{Clock: clock,
			Pushes: List{}.Append(AppendPush(nil, &Push{Producer: 7, Incarnation: 8, Sequence: 9, Shape: 1, Leaves: true}))}},
		"windows_none":  {Kind: KindWindows, Shape: 1, Group: 1 << 63, Windows: Windows{Clock: clock}},
		"write":         {Kind: KindRequest, Shape: 1, Request: request},
		"write_unknown": {Kind: KindRequest, Shape: 1, Request: unknown},
		"write_pair":    {Kind: KindRequest, Shape: 3, Group: 9, Request: pair},
		"deltas":        {Kind: KindDeltas, Shape: 1, Request: deltas},
		"boundary": {Kind: KindBoundary, Shape: 1, Boundary: Boundary{
			End: clock - clock%10_000, CounterTTL: 1, GaugeTTL: 2, CheckTTL: 3, UpDownTTL: 4, Timed: 5,
			Shards: shards, Full: List{}.AppendText("a").AppendText("b"),
		}},
		"write_results": {Kind: KindRequest, Shape: 1,
			Request: Request{Tenant: "acme", Form: RemoteWrite2, Results: true, Body: []byte{0}}},
		"boundary_simple": {Kind: KindBoundary, Shape: 1, Boundary: Boundary{End: 10_000, Shards: Shards{1}}},
		"boundary_begins": {Kind: KindBoundary, Shape: 1, Boundary: Boundary{End: 10_000, Begins: true, Shards: Shards{1}}},
		"events": {
			Kind:  KindEvents,
			Shape: 1,
			Events: Events{Tenant: "team-a", Arrival: clock, Retention: 3_456_000_000, MaxEvents: 100_000, MaxTenants: 100,
				Hash: 0x0123456789abcdef, List: List{}.AppendText("an event").AppendText("")},
		},
		"names": {Kind: KindNames, Shape: 1, Names: Names{
			Clock: clock, MaxNames: 100_000, MaxTenants: 100, Unused: 3_456_000_000, CounterTTL: 1, GaugeTTL: 2, CheckTTL: 3,
			UpDownTTL: 4,
			Claims: List{}.Append(AppendClaim(nil, &Claim{Tenant: "team-a", Kind: 1, Name: "hits"})).
				Append(AppendClaim(nil, &Claim{Tenant: "team-b", Kind: 3, Name: "latency", Buckets: "0.1,1"})),
		}},
		"version":               {Kind: KindVersion, Shape: 1, Version: Version{Format: 1, Semantics: 300}},
		"node":                  {Kind: KindNode, Shape: 1, Node: Node{Name: "a", Member: 0x0123456789abcdef}},
		"node that is replaced": {Kind: KindNode, Shape: 1, Node: Node{Name: "a", Member: 0x0123456789abcdef, Replaces: 3}},
		"node that is removed":  {Kind: KindNode, Shape: 1, Node: Node{Name: "a", Replaces: 3}},
		"drain":                 {Kind: KindDrain, Shape: 1, Drain: Drain{Name: "b", Until: 1795228020154}},
		"drain_ends":            {Kind: KindDrain, Shape: 1, Drain: Drain{Name: "b"}},
		"rules": {Kind: KindRules, Shape: 1, Rules: Rules{Tenant: "acme", Groups: AppendRuleGroup(AppendRuleGroup(nil,
			&RuleGroup{Key: [32]byte{1, 2}, State: []byte("state")}), &RuleGroup{Key: [32]byte{3}})}},
		"ruleset": {Kind: KindRuleSet, Shape: 1, RuleSet: RuleSet{Tenant: "acme", Namespace: "a/b", Group: "g",
			MaxTenants: 100, MaxGroups: 1000, MaxRules: 10_000, MaxBytes: 4 << 20, Rules: 2, Text: []byte("name: g")}},
		"ruleset_deleted": {Kind: KindRuleSet, Shape: 1, RuleSet: RuleSet{Tenant: "acme", Namespace: "a/b"}},
		"import_offered": {Kind: KindImport, Shape: 1, Import: Import{Step: ImportOffered, Tenant: "acme",
			Block: [16]byte{1, 2}, Stored: [16]byte{3}, Node: "a", MaxTenants: 100, MinTime: -1, MaxTime: clock,
			Series: 5, Samples: 1 << 40,
			Files: AppendImportedFile(AppendImportedFile(nil, &ImportedFile{Name: "chunks/000001", Size: 1 << 40,
				SHA256: [32]byte{4}}), &ImportedFile{Name: "index"})}},
		"import_shown": {Kind: KindImport, Shape: 1,
			Import: Import{Step: ImportShown, Tenant: "acme", Block: [16]byte{1, 2}, Stored: [16]byte{3}}},
		"import_withdrawn": {Kind: KindImport, Shape: 1,
			Import: Import{Step: ImportWithdrawn, Tenant: "acme", Block: [16]byte{1, 2}, Stored: [16]byte{3}}},
		"import_removed": {Kind: KindImport, Shape: 1,
			Import: Import{Step: ImportRemoved, Tenant: "acme", Block: [16]byte{1, 2}}},
		"forwarded": {Kind: KindForwarded, Shape: 1,
			Forwarded: AppendForwarded(AppendForwarded(nil, "a", 1<<40), strings.Repeat("b", maxBackend), 1)},
	}
}

// An entry is read as it was written, and its bytes equal its file in testdata/golden, which every
// later program must read. -update writes only missing files.
func TestGolden(t *testing.T) {
	names, _ := filepath.Glob("testdata/golden/*")
	if len(names) != len(examples()) && !*update {
		t.Errorf("testdata/golden has %d files, and there are %d examples", len(names), len(examples()))
	}
	for name, want := range examples() {
		file := filepath.Join("testdata/golden", name)
		golden, err := os.ReadFile(file)
		if os.IsNotExist(err) && *update {
			golden, err = want.Append(nil), os.WriteFile(file, want.Append(nil), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if b := want.Append([]byte("before")); string(b) != "before"+string(golden) {
			t.Errorf("%s is written as\n%x, want\n%x", name, b[len("before"):], golden)
		}
		got := used(want.Kind)
		if err := got.Parse(golden); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		clean(&got, &want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as\n%+v, want\n%+v", name, got, want)
		}
	}
}

// used returns an entry that was parsed before: the fields of the kind already have values.
func used(kind Kind) (e Entry) {
	e.Request = examples()["write_pair"].Request
	e.Request.Hash = 1
	for _, same := range examples() {
		if same.Kind == kind && kind != KindRequest {
			e = same
		}
	}
	return e
}

// clean prepares entries for a comparison: it makes empty lists nil, and clears the fields of other
// kinds, which mean nothing.
func clean(all ...*Entry) {
	for _, e := range all {
		if e.Kind != KindRequest && e.Kind != KindDeltas {
			e.Request = Request{}
		}
		for _, l := range []*List{&e.Windows.Pushes, &e.Boundary.Full, &e.Events.List, &e.Names.Claims, &e.Forwarded} {
			if len(*l) == 0 {
				*l = nil
			}
		}
	}
}

// An entry of a newer program stops a member, and so does a malformed one; only the error differs.
func TestRefused(t *testing.T) {
	all := examples()
	bytesOf := func(name string) []byte {
		e := all[name]
		return e.Append(nil)
	}
	set := func(name string, at int, to byte) []byte {
		b := bytesOf(name)
		b[at] = to
		return b
	}
	unknownPush := AppendPush(nil, &Push{Shape: 1})
	unknownPush[0] = 4
	batches := List{}.Append([]byte("a batch"))
	const header = 14
	for _, c := range []struct {
		why   string
		bytes []byte
		newer bool
	}{
		{"nothing", nil, false},
		{"a part of the header", bytesOf("version")[:header-1], false},
		{"no version", set("write", 0, 0), false},
		{"a newer version", set("write", 0, 2), true},
		{"no kind", set("write", 1, 0), false},
		{"an unknown kind", set("write", 1, byte(lastKind)+1), true},
		{"no shape", set("write", 2, 0), false},
		{"an unknown flag of a request", set("write", header, 4), true},
		{"no form", set("write", header+1, 0), false},
		{"an unknown form", set("write", header+1, 3), true},
		{"no tenant", set("events", header, 0), false},
		{"a number that is longer than needed", append(bytesOf("version")[:header], 0x80, 0, 1), false},
		{"a number of more than 32 bits", append(bytesOf("version")[:header], 0xff, 0xff, 0xff, 0xff, 0x1f, 1), false},
		{"bytes after the end", append(bytesOf("version"), 0), false},
		{"a time above the largest", binary.AppendUvarint(bytesOf("windows_none")[:header], maxTime+1), false},
		{"a list that is cut", bytesOf("names")[:len(bytesOf("names"))-1], false},
		{"a claim without a name", append(bytesOf("names"), List{}.Append(AppendClaim(nil, &Claim{Tenant: "a", Kind: 1}))...),
			false},
		{"no body", bytesOf("write")[:len(bytesOf("write"))-len("a body")], false},
		{"an unknown flag of a push", append(bytesOf("windows_none"), List{}.Append(unknownPush)...), true},
		{"a push that leaves, with batches", append(bytesOf("windows_none"),
			List{}.Append(AppendPush(nil, &Push{Shape: 1, Leaves: true, Batches: batches}))...), false},
		{"a push without a shape", append(bytesOf("windows_none"), List{}.Append(AppendPush(nil, &Push{}))...), false},
		{"a push that is cut", append(bytesOf("windows_none"), List{}.Append(AppendPush(nil, &Push{})[:10])...), false},
		{"an unknown flag of a boundary", set("boundary_simple", header, 2), true},
		{"a boundary inside a tile", set("boundary_simple", header+1, 0x11), false},
		{"a boundary of no shard", set("boundary_simple", header+8, 0), false},
		{"a full tenant without a name", append(bytesOf("boundary_simple"), 0), false},
		{"no backend", bytesOf("forwarded")[:header], false},
		{"backends that do not ascend", append(bytesOf("forwarded"), AppendForwarded(nil, "a", 1)...), false},
		{"a backend without a name", append(bytesOf("forwarded")[:header], 8, 1, 0, 0, 0, 0, 0, 0, 0), false},
		{"a backend without an entry", append(bytesOf("forwarded")[:header], 9, 0, 0, 0, 0, 0, 0, 0, 0, 'a'), false},
		{"too large", make([]byte, MaxSize+1), false},
	} {
		var e Entry
		if err := e.Parse(c.bytes); err == nil || errors.Is(err, ErrNewer) != c.newer ||
			!strings.HasPrefix(err.Error(), "entry: ") {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

// Append panics instead of making an entry at which every member would stop.
func TestAppendRefuses(t *testing.T) {
	broken := map[string]func(e *Entry){
		"an unknown kind":          func(e *Entry) { e.Kind = lastKind + 1 },
		"no shape":                 func(e *Entry) { e.Shape = 0 },
		"no tenant":                func(e *Entry) { e.Request.Tenant = "" },
		"a long tenant":            func(e *Entry) { e.Request.Tenant = strings.Repeat("t", maxTenant+1) },
		"no form":                  func(e *Entry) { e.Request.Form = 0 },
		"an unknown form":          func(e *Entry) { e.Request.Form = 3 },
		"no body":                  func(e *Entry) { e.Request.Body = nil },
		"a negative limit":         func(e *Entry) { e.Request.MaxSeries = -1 },
		"a negative number":        func(e *Entry) { e.Request.MaxTenants = -1 },
		"a time before 1970":       func(e *Entry) { e.Request.Arrival = -1 },
		"a time above the largest": func(e *Entry) { e.Request.Window = maxTime + 1 },
		"a long agent":             func(e *Entry) { e.Request.Sender.Agent = strings.Repeat("a", maxAgent+1) },
		"too large":                func(e *Entry) { e.Request.Body = make([]byte, MaxSize) },
		"no shards":                func(e *Entry) { e.Kind, e.Boundary = KindBoundary, Boundary{} },
		"an end inside tiles":      func(e *Entry) { e.Kind, e.Boundary = KindBoundary, Boundary{End: 1, Shards: Shards{1}} },
	}
	for why, do := range broken {
		e := examples()["write"]
		do(&e)
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: ") {
					t.Errorf("%s: appended", why)
				}
			}()
			e.Append(nil)
		}()
	}
}

// A leader adds pushes to an entry that it has begun.
func TestPushesAreAdded(t *testing.T) {
	want := examples()["windows"]
	begun := Entry{Kind: KindWindows, Shape: 1, Windows: Windows{Clock: clock, MaxTenants: 1000}}
	b := List(begun.Append(nil))
	for p := range want.Windows.Pushes.All() {
		b = b.Append(p)
	}
	if !bytes.Equal(b, want.Append(nil)) {
		t.Errorf("%x, want %x", b, want.Append(nil))
	}
	var pushes []Push
	var batches []string
	for b := range want.Windows.Pushes.All() {
		p, err := ParsePush(b)
		if err != nil {
			t.Fatal(err)
		}
		for batch := range p.Batches.All() {
			batches = append(batches, string(batch))
		}
		p.Batches = nil
		pushes = append(pushes, p)
	}
	if !slices.Equal(batches, []string{"a batch", strings.Repeat("b", 200)}) ||
		!reflect.DeepEqual(pushes, []Push{
			{Producer: 1 << 63, Incarnation: 2, Sequence: 3, Stream: 4, Shape: 1},
			{Producer: 7, Incarnation: 8, Sequence: 1 << 40, Shape: 2, Again: true},
		}) {
		t.Errorf("got the pushes %+v with the batches %q", pushes, batches)
	}
}

func TestShards(t *testing.T) {
	var s Shards
	for _, shard := range []uint16{0, 63, 64, 1023} {
		s.Add(shard)
	}
	for shard := range uint16(1024) {
		if want := slices.Contains([]uint16{0, 63, 64, 1023}, shard); s.Has(shard) != want {
			t.Errorf("shard %d: Has returned %v", shard, !want)
		}
	}
}

// FuzzParse checks that each entry has one encoding, and that a reader refuses all other bytes
// without a panic.
func FuzzParse(f *testing.F) {
	for _, e := range examples() {
		b := e.Append(nil)
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		if e.Parse(b) != nil {
			return
		}
		if got := e.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x is read as %+v, but written again as %x", b, e, got)
		}
		if e.Kind == KindWindows {
			for p := range e.Windows.Pushes.All() {
				push, err := ParsePush(p)
				if err != nil || !bytes.Equal(AppendPush(nil, &push), p) {
					t.Fatalf("the push %x is read as %+v, which is written differently; error %v", p, push, err)
				}
			}
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	room := make([]byte, 0, 4<<10)
	for name, e := range examples() {
		b := e.Append(nil)
		var read Entry
		items := 0
		if n := testing.AllocsPerRun(100, func() {
			room = e.Append(room[:0])
			if err := read.Parse(b); err != nil {
				t.Fatal(err)
			}
			for p := range read.Windows.Pushes.All() {
				push, _ := ParsePush(p)
				for range push.Batches.All() {
					items++
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
