package peer

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/usage"
)

// A batch is read as protobuf reads it. If it is not refused, it has only messages between the members of the
// hello, all of them unchanged.
func FuzzBatch(f *testing.F) {
	m := heartbeat(f, 1, 2, 3)
	body, err := m.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := proto.Marshal(&wire.Batch{Messages: []*wire.Message{{Body: body, Sent: 5}, {Body: body}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	sent, err := wire.Codec.Marshal(wire.Parts{{Body: [][]byte{body[:3], nil, body[3:]}, Bytes: len(body), Sent: 5},
		{Body: [][]byte{body}, Bytes: len(body), Sent: -5, Applied: 7, Short: true}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sent.Materialize())
	hello, err := proto.Marshal(&wire.Batch{Hello: &wire.Hello{Node: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hello)
	f.Fuzz(func(t *testing.T, b []byte) {
		var in, want wire.Batch
		err := wire.Codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &in)
		failure := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, &want)
		if (err == nil) != (failure == nil) || err == nil && !proto.Equal(&in, &want) {
			t.Fatalf("read as %v, error %v; want %v, error %v", &in, err, &want, failure)
		}
		if err != nil {
			return
		}
		all, err := readBatch(&wire.Hello{From: 1, To: 2}, &in)
		if err != nil {
			return
		}
		if len(all) != len(in.GetMessages()) {
			t.Fatalf("readBatch returns %d messages, want %d", len(all), len(in.GetMessages()))
		}
		for i, m := range all {
			if m.From != 1 || m.To != 2 || m.Sent != in.GetMessages()[i].GetSent() {
				t.Errorf("the message %v, sent at %d, was changed", &m, m.Sent)
			}
		}
	})
}

// The bodies of a batch that is sent are not copied, and it arrives as if it had been sent by protobuf.
func TestABatchInParts(t *testing.T) {
	parts := wire.Parts{
		{Body: [][]byte{{1, 2}, nil, {3}}, Bytes: 3, Sent: 1_795_228_020_000, Applied: 1 << 40, Short: true}, {}}
	got, err := wire.Codec.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	want := &wire.Batch{Messages: []*wire.Message{
		{Body: []byte{1, 2, 3}, Sent: 1_795_228_020_000, Applied: 1 << 40, Short: true}, {}}}
	var is wire.Batch
	if err := proto.Unmarshal(got.Materialize(), &is); err != nil || !proto.Equal(&is, want) {
		t.Errorf("arrives as %v, error %v; want %v", &is, err, want)
	}
	shared := false
	for _, b := range got {
		shared = shared || b.Len() == 2 && &b.ReadOnlyData()[0] == &parts[0].Body[0][0]
	}
	if !shared {
		t.Error("the body was copied")
	}
}

// If a text is not refused, the parsed secret has the same text. Only push secrets are tried, because
// the derivation of a cluster's secret is slow.
func FuzzPushSecret(f *testing.F) {
	f.Add(secret(f).Push()[len(pushPrefix):])
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, encoded string) {
		if s, err := parsePush(encoded); err == nil && (s.Push() != pushPrefix+encoded || !s.OnlyPush()) {
			t.Errorf("%q is read as %q", encoded, s.Push())
		}
	})
}

// A report that is not refused is within its bounds, and stays the same when it is sent on.
func FuzzShare(f *testing.F) {
	for _, uses := range []map[string]usage.Use{reported, shared.Others} {
		b, err := proto.Marshal(&wire.ShareRequest{Uses: writeUses(uses), Books: writeBooks(&books),
			Stages: writeStages(stages), Refusals: writeRefusals(sentBack)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in wire.ShareRequest
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		x, err := readShared(&in)
		if err != nil {
			return
		}
		if x.Books != nil {
			again, err := readBooks(writeBooks(x.Books))
			if err != nil || again.Producer != x.Books.Producer || len(again.Tenants) > len(x.Books.Tenants)+1 {
				t.Errorf("%+v becomes %+v, %v", x.Books, again, err)
			}
		}
		if again, err := readStages(writeStages(x.Stages)); err != nil || len(again) != len(x.Stages) ||
			len(again) > 0 && !reflect.DeepEqual(again, x.Stages) {
			t.Errorf("%+v becomes %+v, %v", x.Stages, again, err)
		}
		if again, err := readRefusals(writeRefusals(x.Refusals)); err != nil || !reflect.DeepEqual(again, x.Refusals) {
			t.Errorf("%+v becomes %+v, %v", x.Refusals, again, err)
		}
		once := x.Uses
		for tenant, u := range once {
			if u.Samples < 0 || u.Series < 0 || u.New < 0 || len(u.Metrics) > usage.MaxMetrics {
				t.Errorf("tenant %q: got %+v", tenant, u)
			}
		}
		if twice, err := readUses(writeUses(once)); err != nil || !reflect.DeepEqual(twice, once) {
			t.Errorf("%+v becomes %+v, %v", once, twice, err)
		}
	})
}

// A report that is sent on stays the same, and can be encoded as JSON.
func FuzzReport(f *testing.F) {
	for _, r := range []*Report{{}, {Version: "v1.2.3", Bytes: 1 << 40, Samples: 7, Oldest: 0.5}} {
		b, err := proto.Marshal(encodeReport(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in wire.Report
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		once := decodeReport(&in)
		if twice := decodeReport(encodeReport(once)); *twice != *once {
			t.Errorf("%+v becomes %+v", once, twice)
		}
		if _, err := json.Marshal(once); err != nil || len(once.Version) > 3*maxVersion {
			t.Errorf("%+v: %v", once, err)
		}
	})
}

// An error that another node sent stays the same when it is sent on.
func FuzzError(f *testing.F) {
	for _, err := range []error{
		&batch.FullError{Samples: map[string]uint64{"x": 3}, Cause: batch.ErrRefused}, &NotLeaderError{"a", "b:1"},
		errors.New("another"),
	} {
		b, err := proto.Marshal(encodeError(err))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in wire.Error
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		once := decodeError(&in)
		if twice := decodeError(encodeError(once)); len(once.Error()) < maxErrorText && twice.Error() != once.Error() {
			t.Errorf("%q becomes %q", once, twice)
		}
		for _, s := range sentinels {
			if errors.Is(once, s.err) && !errors.Is(decodeError(encodeError(once)), s.err) {
				t.Errorf("the error %q is no longer %v after it was sent on", once, s.err)
			}
		}
	})
}
