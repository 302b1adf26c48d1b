package peer

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
)

// A node gets the list of the files of its copy, and the files, and pins the log of the other node.
func TestCallsOfAFill(t *testing.T) {
	all := nodes(t, "a", "b")
	b, h := all["b"], all["a"].handler
	h.pinned = make(chan uint64, 1)
	if files, err := b.Copy(t.Context(), "a", false); err != nil || len(files) != 2*filesAtOnce+1 {
		t.Errorf("got %d files, want %d; error %v", len(files), 2*filesAtOnce+1, err)
	}
	want := []CopiedFile{{"tsdb/x", 1}, {"y", 1 << 40}}
	if files, err := b.Copy(t.Context(), "a", true); err != nil || !reflect.DeepEqual(files, want) {
		t.Errorf("got the files %v, want %v; error %v", files, want, err)
	}
	if err := b.Pin(t.Context(), "a", 17); err != nil || <-h.pinned != 17 {
		t.Error(err)
	}
	for _, size := range []int{0, 1, piece, piece + 1, 20 * piece} {
		h.copied = strings.Repeat("0123456789", size/10+1)[:size]
		var got bytes.Buffer
		take := func(b []byte) error { _, err := got.Write(b); return err }
		if err := b.Fetch(t.Context(), "a", CopiedFile{"tsdb/x", int64(size)}, take); err != nil || got.String() != h.copied {
			t.Errorf("a file of %d bytes arrives with %d bytes; error %v", size, got.Len(), err)
		}
	}
	for name, f := range map[string]CopiedFile{
		"another size": {"tsdb/x", 7}, "no such file": {"z", 7}, "a larger size": {"tsdb/x", 1 << 40},
	} {
		err := b.Fetch(t.Context(), "a", f, func([]byte) error { return nil })
		if err == nil || errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), f.Name) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	full := errors.New("the disk is full")
	whole := CopiedFile{"tsdb/x", int64(len(h.copied))}
	if err := b.Fetch(t.Context(), "a", whole, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("the error is %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Copy(gone, "a", true); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a call that was given up is %v", err)
	}
	all["a"].stop()
	if _, err := b.Copy(t.Context(), "a", true); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the error of a node that is gone is %v", err)
	}
}

// A piece that changed on the way, or is out of its place, is refused at once, and not at the end of a large file.
func TestPiecesAreChecked(t *testing.T) {
	sum := crc32.Checksum([]byte("ab"), castagnoli)
	for name, p := range map[string]*wire.FetchReply{
		"changed":       {Data: []byte("aB"), Crc: sum},
		"repeated":      {Offset: 2, Data: []byte("ab"), Crc: sum},
		"too long":      {Data: []byte("abcde"), Crc: crc32.Checksum([]byte("abcde"), castagnoli)},
		"the end early": {Crc: 0, Last: true},
		"empty":         {},
	} {
		f := fetched{file: CopiedFile{Size: 4}}
		if err := f.add(p); !errors.Is(err, errTransfer) || f.bytes != 0 {
			t.Errorf("%s: error %v, and %d bytes are taken", name, err, f.bytes)
		}
	}
}

// A collector must not read the data of a node.
func TestACollectorGetsNoCopy(t *testing.T) {
	for _, method := range []string{wire.Peer_Copy_FullMethodName, wire.Peer_Fetch_FullMethodName,
		wire.Peer_Pin_FullMethodName} {
		if forCollectors[method] {
			t.Errorf("a collector may call %s", method)
		}
	}
}

// Whatever pieces come, a file that counts as whole has the size and the checksum that it should have.
func FuzzFetched(f *testing.F) {
	sum := crc32.Checksum([]byte("abcd"), castagnoli)
	part := crc32.Checksum([]byte("ab"), castagnoli)
	pieces := func(all ...*wire.FetchReply) (b []byte) {
		for _, p := range all {
			one, err := proto.Marshal(p)
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, byte(len(one))), one...)
		}
		return b
	}
	first := &wire.FetchReply{Data: []byte("ab"), Crc: part}
	second := &wire.FetchReply{Offset: 2, Data: []byte("cd"), Crc: crc32.Checksum([]byte("cd"), castagnoli)}
	f.Add(uint16(4), pieces(first, second, &wire.FetchReply{Offset: 4, Crc: sum, Last: true}))
	f.Add(uint16(2), pieces(first, &wire.FetchReply{Offset: 2, Crc: part, Last: true}))
	f.Add(uint16(4), pieces(first, first, second))
	f.Add(uint16(0), pieces(&wire.FetchReply{Last: true}))
	f.Fuzz(func(t *testing.T, size uint16, b []byte) {
		got := fetched{file: CopiedFile{Size: int64(size)}}
		var data []byte
		for len(b) > 0 && !got.whole {
			n := min(int(b[0]), len(b)-1)
			var next wire.FetchReply
			if proto.Unmarshal(b[1:1+n], &next) != nil || got.add(&next) != nil {
				return
			}
			data, b = append(data, next.GetData()...), b[1+n:]
		}
		if got.whole && (len(data) != int(size) || crc32.Checksum(data, castagnoli) != got.sum) {
			t.Errorf("%d bytes are taken for a file of %d bytes", len(data), size)
		}
	})
}

// The progress of a fill that a node tells can always be shown.
func FuzzFill(f *testing.F) {
	for _, p := range []*Fill{{}, well.Fill, {From: "b", Seconds: -1, ETA: 1e300}} {
		b, err := proto.Marshal(encodeFill(p))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in wire.Fill
		if proto.Unmarshal(b, &in) != nil {
			return
		}
		once := decodeFill(&in)
		if twice := decodeFill(encodeFill(once)); *twice != *once {
			t.Errorf("%+v becomes %+v", once, twice)
		}
	})
}
