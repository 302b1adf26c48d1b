package queue

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// Whatever bytes a segment has, the queue opens, and takes further frames. Each frame that it
// returns is in the file, byte for byte and in order. The corpus has a whole segment, and torn,
// flipped, shuffled and forged segments.
func FuzzSegment(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, firstPos uint16) {
		first := segment.Position(firstPos) + 1
		// Half of the inputs get a good header: otherwise few would reach the frames.
		if len(data)%2 == 0 {
			data = append(segment.AppendHeader(nil, segmentFormat.Magic, testMark, first), data...)
		}
		fs := memfs.New()
		fs.Files[segmentFormat.Name(first)] = &memfs.File{Data: bytes.Clone(data)}
		q, err := Open(fs, Options{Mark: testMark, MaxBytes: memfs.Plenty})
		if err != nil {
			return // only a segment of another version is an error
		}
		waiting, _ := q.Waiting()
		more := Frame{Time: 1, Samples: 2, Payload: []byte("more")}
		if _, err := q.Append(more); err != nil {
			t.Fatal(err)
		}
		last, read := segment.Position(0), Amount{}
		for {
			r, ok, err := q.Peek()
			if err != nil || !ok {
				t.Fatalf("%d frames were read, but not the appended one; error %v", read.Frames, err)
			}
			if q.peeked.Pos <= last {
				t.Fatalf("position %d follows position %d", q.peeked.Pos, last)
			}
			last = q.peeked.Pos
			if _, err := q.Done(); err != nil {
				t.Fatal(err)
			}
			if last == q.tail.Last {
				break
			}
			read.Add(r.Amount())
			// The file may have another mark, so the mark is not compared.
			if whole := frame(0, last, &r); !bytes.Contains(data, whole[4:]) {
				t.Fatalf("frame %d, which has %d bytes, was invented", last, len(r.Payload))
			}
		}
		if read != waiting {
			t.Fatalf("read %+v, want %+v as counted at the start", read, waiting)
		}
		if rest, _ := q.Waiting(); rest != (Amount{}) {
			t.Fatalf("an empty queue has %+v left", rest)
		}
	})
}
