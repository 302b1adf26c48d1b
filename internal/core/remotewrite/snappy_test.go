package remotewrite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/golang/snappy"
)

// A body that is over the limit, or that states a false size, costs no memory.
func TestABombIsRefusedBeforeMemoryIsAskedFor(t *testing.T) {
	const limit = 1 << 20
	framed := new(bytes.Buffer)
	w := snappy.NewBufferedWriter(framed)
	if _, err := w.Write([]byte("abc")); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		why  string
		body []byte
		want string
	}{
		{"4 GiB", binary.AppendUvarint(nil, 4<<30-1), "the body has 4294967295 bytes decompressed, and the limit is 1048576"},
		{"more than snappy can", binary.AppendUvarint(nil, 1<<40),
			"the body has 1099511627776 bytes decompressed, and the limit is"},
		{"a byte over the limit", snappy.Encode(nil, make([]byte, limit+1)), "the body has 1048577 bytes"},
		{"a header alone", binary.AppendUvarint(nil, limit),
			"the body is not compressed with snappy: 3 bytes cannot become the 1048576 bytes that its header states"},
		{"nothing", nil, "the body is not compressed with snappy"},
		{"no end of the size", bytes.Repeat([]byte{0xff}, 10), "the body is not compressed with snappy"},
		{"cut off", snappy.Encode(nil, []byte("abcdef"))[:4], "the body is not compressed with snappy"},
		{"framed", framed.Bytes(), ErrFramed.Error()},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decompress(nil, test.body, limit)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.why, err, test.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > limit/10 {
			t.Errorf("%s: %d bytes are allocated, want at most %d", test.why, n, limit/10)
		}
	}
	var size *SizeError
	if _, err := Decompress(nil, binary.AppendUvarint(nil, 4<<30-1), limit); !errors.As(err, &size) {
		t.Errorf("error %v, want a SizeError, which is answered with 413", err)
	}
}

// Decompress accepts even a body of one repeated byte, which compresses best of all: the check for a
// false size refuses no true size.
func TestDecompress(t *testing.T) {
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	memory := make([]byte, 0, 1<<20)
	for _, want := range [][]byte{nil, []byte("a"), random, make([]byte, 1<<20), bytes.Repeat([]byte("up"), 3000),
		make([]byte, 70), make([]byte, 65536)} {
		got, err := Decompress(memory, snappy.Encode(nil, want), 1<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d decompressed bytes, error %v, want the same bytes",
				len(want), len(got), err)
		}
		if len(got) > 0 && &got[0] != &memory[:1][0] {
			t.Errorf("the %d bytes are not in the given memory", len(got))
		}
	}
}
