package capture

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// some is a list of datagrams, one for each kind of sender.
var some = []Datagram{
	{Time: 1, Network: "udp", Address: "127.0.0.1:8125",
		Sender: sender.Sender{Addr: netip.MustParseAddrPort("127.0.0.1:5000")}, Data: []byte("a:1|c")},
	{Time: 2, Network: "unixgram", Address: "/run/d.sock", Sender: sender.Sender{PID: 7, UID: 1000},
		Data: []byte("b:1|c\nc:2|g")},
	{Time: 2, Network: "udp", Address: "127.0.0.1:8125",
		Sender: sender.Sender{Addr: netip.MustParseAddrPort("[::1]:65535")}, Data: []byte("d:1|c")},
	{Time: 9, Network: "udp", Address: "127.0.0.1:8125", Data: []byte("\x00\xff"), Missed: 12},
	{Time: 10, Network: "unix", Address: "/run/s.sock", Data: []byte("")},
}

func written(t testing.TB, all []Datagram) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if err := w.Write(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// read returns all datagrams, how many were missed after the last one, and the error that ends the
// capture.
func read(r io.Reader) (all []Datagram, missedLast uint64, err error) {
	reader := NewReader(r)
	for {
		var d Datagram
		if err := reader.Next(&d); err != nil {
			return all, d.Missed, err
		}
		d.Data = bytes.Clone(d.Data)
		all = append(all, d)
	}
}

func TestRoundTrip(t *testing.T) {
	got, _, err := read(iotest.OneByteReader(bytes.NewReader(written(t, some))))
	if err != io.EOF || len(got) != len(some) {
		t.Fatalf("read %d datagrams, want %d; error %v", len(got), len(some), err)
	}
	for i := range got {
		if want := some[i]; !bytes.Equal(got[i].Data, want.Data) {
			t.Errorf("datagram %d: %q, want %q", i, got[i].Data, want.Data)
		} else if got[i].Data, want.Data = nil, nil; !reflect.DeepEqual(got[i], want) {
			t.Errorf("datagram %d: %+v, want %+v", i, got[i], want)
		}
	}
}

func TestMissedAtTheEnd(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	_ = w.Write(&some[0])
	_ = w.Missed(0) // writes nothing
	_ = w.Missed(3)
	_ = w.Missed(4)
	if all, missed, err := read(&b); len(all) != 1 || missed != 7 || err != io.EOF {
		t.Errorf("read %d datagrams, want 1; %d missed at the end, want 7; error %v", len(all), missed, err)
	}
}

// A capture without datagrams is valid; an empty file is not.
func TestNothing(t *testing.T) {
	if all, _, err := read(bytes.NewReader(written(t, nil))); len(all) != 0 || err != io.EOF {
		t.Errorf("read %d datagrams, want 0; error %v", len(all), err)
	}
	if _, _, err := read(strings.NewReader("")); err == nil || err == io.EOF || errors.Is(err, ErrCut) {
		t.Errorf("an empty file: %v", err)
	}
}

// Wherever a capture is cut off, all records before the cut are read. A cut inside a record is
// reported as ErrCut, not as the end.
func TestCutAnywhere(t *testing.T) {
	whole := written(t, some)
	var ends []int // lengths of the prefixes that hold 1, 2, 3 and more datagrams
	for n := range some {
		ends = append(ends, len(written(t, some[:n+1])))
	}
	for cut := 1; cut < len(whole); cut++ {
		all, _, err := read(bytes.NewReader(whole[:cut]))
		want := 0
		for _, end := range ends {
			if end <= cut {
				want++
			}
		}
		if len(all) != want || err != io.EOF && !errors.Is(err, ErrCut) {
			t.Errorf("cut at byte %d: %d datagrams, want %d; %v", cut, len(all), want, err)
		}
		if whole := atRecord(whole, cut); whole != (err == io.EOF) {
			t.Errorf("cut at byte %d: error %v, want io.EOF only where a record ends", cut, err)
		}
	}
}

// atRecord reports whether a record begins at byte `cut`.
func atRecord(whole []byte, cut int) bool {
	r := NewReader(bytes.NewReader(whole))
	if r.begin() != nil {
		return false
	}
	for r.at < int64(cut) {
		if _, err := r.record(); err != nil {
			return false
		}
	}
	return r.at == int64(cut)
}

// A changed byte is always found, and never read as data.
func TestDamage(t *testing.T) {
	whole := written(t, some)
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		all, _, err := read(bytes.NewReader(damaged))
		if err == io.EOF {
			t.Errorf("with byte %d changed, the capture is read to the end without an error", i)
		}
		for n, d := range all {
			if !bytes.Equal(d.Data, some[n].Data) {
				t.Errorf("with byte %d changed, datagram %d is read as %q", i, n, d.Data)
			}
		}
	}
}

func TestErrorsOfReading(t *testing.T) {
	newer := written(t, nil)
	newer[len(magic)] = 2
	for _, tt := range []struct {
		name  string
		bytes io.Reader
		want  string
	}{
		{"something else", strings.NewReader("page_views:1|c\n"),
			"read the capture: it has no capture header; was it written by freshet capture?"},
		{"a version to come", bytes.NewReader(newer),
			"read the capture: it has version 2 and this program reads 1; use a newer one"},
		{"a disk that fails",
			io.MultiReader(bytes.NewReader(written(t, some[:1])), iotest.ErrReader(errors.New("input/output error"))),
			"read the capture: input/output error"},
	} {
		if _, _, err := read(tt.bytes); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Records that a later version adds are skipped.
func TestUnknownRecord(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	_ = w.Write(&some[0])
	_ = w.end(append(w.record(200), "from the future"...))
	_ = w.Write(&some[1])
	if all, _, err := read(&b); len(all) != 2 || err != io.EOF {
		t.Errorf("read %d datagrams, want 2; error %v", len(all), err)
	}
}

// Bound: 0 allocs/op and at most 500 ns for a datagram of 100 bytes, so that a capture of 100,000
// datagrams a second takes a twentieth of a core.
func BenchmarkWriter(b *testing.B) {
	w := NewWriter(io.Discard)
	d := some[0]
	d.Data = bytes.Repeat([]byte("x"), 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(&d); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	w := NewWriter(io.Discard)
	d := some[0]
	if n := testing.AllocsPerRun(100, func() { _ = w.Write(&d) }); n != 0 {
		t.Errorf("%v allocations a datagram", n)
	}
}

// A Reader comes to an end on any input. Datagrams that it has read do not change when they are written
// and read again.
func FuzzReader(f *testing.F) {
	whole := written(f, some)
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte(magic))
	f.Add([]byte("\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x07\x00\x00\x00a:1|c"))
	check := func(t *testing.T, b []byte) {
		all, _, err := read(bytes.NewReader(b))
		if err == nil {
			t.Fatal("no end")
		}
		again, _, err := read(bytes.NewReader(written(t, all)))
		if err != io.EOF || len(again) != len(all) {
			t.Fatalf("written and read again: got %d datagrams, want %d; error %v", len(again), len(all), err)
		}
		for i := range all {
			if !reflect.DeepEqual(all[i], again[i]) {
				t.Fatalf("datagram %d: got %+v after writing it again, want %+v", i, again[i], all[i])
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, b)
		if len(b) == 0 {
			return
		}
		// The same bytes are also read as a record with a valid checksum, because the fuzzer cannot guess
		// checksums.
		var framed bytes.Buffer
		w := NewWriter(&framed)
		_ = w.Write(&some[0])
		_ = w.end(append(w.record(b[0]), b[1:]...))
		check(t, framed.Bytes())
	})
}
