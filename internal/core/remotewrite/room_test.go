package remotewrite

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"
)

// A body of 1 MiB that consists only of empty messages of any kind takes only a small multiple of
// its size when decoded.
func TestEmptyPartsTakeNoMemory(t *testing.T) {
	const size = 1 << 20
	inSeries := func(tag byte, n int) []byte { // one series, n bytes of empty messages
		content := bytes.Repeat([]byte{tag, 0}, n/2)
		body := []byte{
			1<<3 | wireBytes, byte(len(content)) | 0x80, byte(len(content)>>7) | 0x80, byte(len(content)>>14) | 0x80,
			byte(len(content) >> 21),
		}
		return append(body, content...)
	}
	second := func(body []byte) []byte { // as version 2
		body = bytes.Clone(body)
		body[0] = 5<<3 | wireBytes
		return body
	}
	var r Request
	for _, c := range []struct {
		what string
		err  error
	}{
		{"series, v1", r.DecodeV1(bytes.Repeat([]byte{1<<3 | wireBytes, 0}, size/2))},
		{"series, v2", r.DecodeV2(bytes.Repeat([]byte{5<<3 | wireBytes, 0}, size/2))},
		{"metadata", r.DecodeV1(bytes.Repeat([]byte{3<<3 | wireBytes, 0}, size/2))},
		{"samples, v1", r.DecodeV1(inSeries(2<<3|wireBytes, size))},
		{"exemplars, v1", r.DecodeV1(inSeries(3<<3|wireBytes, size))},
		{"histograms, v1", r.DecodeV1(inSeries(4<<3|wireBytes, size))},
		{"samples, v2", r.DecodeV2(second(inSeries(2<<3|wireBytes, size)))},
		{"histograms, v2", r.DecodeV2(second(inSeries(3<<3|wireBytes, size)))},
		{"exemplars, v2", r.DecodeV2(second(inSeries(4<<3|wireBytes, size)))},
	} {
		if !errors.Is(c.err, ErrTooManyParts) {
			t.Errorf("%s: %v", c.what, c.err)
		}
	}
	bytes := cap(r.Series)*int(unsafe.Sizeof(Series{})) + cap(r.Families)*int(unsafe.Sizeof(Family{})) +
		cap(r.samples)*int(unsafe.Sizeof(Sample{})) +
		cap(r.exemplars)*int(unsafe.Sizeof(Exemplar{})) + cap(r.histograms)*int(unsafe.Sizeof(Histogram{}))
	if bytes > 80*size { // all five kinds together
		t.Errorf("%d bytes of memory for bodies of %d bytes, want at most %d", bytes, size, 80*size)
	}
	t.Logf("%.1f bytes for each of the body, all kinds together", float64(bytes)/size)
}

// A decoded request holds only data. It used to keep the function that accounts for its memory, and with
// it the whole HTTP request.
func TestABoundEndsWithTheDecode(t *testing.T) {
	full := errors.New("no more")
	for _, result := range []error{nil, full} {
		for version, tag := range map[string]byte{"1": 1<<3 | wireBytes, "2": 5<<3 | wireBytes} {
			var r Request
			calls := 0
			r.Bound(func(int) error { calls++; return result })
			decode := map[string]func([]byte) error{"1": r.DecodeV1, "2": r.DecodeV2}[version]
			body := []byte{tag, 0}
			if err := decode(body); !errors.Is(err, result) || calls != 1 {
				t.Errorf("version %s: error %v after %d calls, want %v after one", version, err, calls, result)
			}
			if r.more != nil {
				t.Errorf("version %s, result %v: the request keeps Bound's function", version, result)
			}
			if err := decode(body); err != nil || calls != 1 {
				t.Errorf("version %s: another body: error %v and %d calls in all, want no error and 1 call",
					version, err, calls)
			}
		}
	}
}
