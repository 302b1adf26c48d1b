package journal

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

const markBytes = 4 // the size of the mark at the beginning of a frame

// Whatever bytes a segment has, a start works. Each frame that it returns is in the file, byte for
// byte and in order, and the journal takes further frames.
func FuzzSegment(f *testing.F) {
	fs, _ := sample(f)
	for name, file := range fs.Files {
		if first, ok := segmentFormat.ParseName(name); ok {
			f.Add(file.Data, uint16(first))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, firstPos uint16) {
		first := Position(firstPos) + 1
		// Half of the inputs get a good header; otherwise few would reach the frames.
		if len(data)%2 == 0 {
			data = append(segment.AppendHeader(nil, segmentFormat.Magic, testMark, first), data...)
		}
		fs := memfs.New()
		fs.Files[segmentFormat.Name(first)] = &memfs.File{Data: bytes.Clone(data)}
		l, _, err := Open(fs, Options{Mark: testMark})
		if err != nil {
			return // Open fails only for another version
		}
		frames := replayed(t, l, data)
		if _, err := l.Append([]Frame{{Shard: 3, Payload: []byte("more")}}); err != nil {
			t.Fatal(err)
		}
		l, _ = mustOpen(t, fs, 0)
		if n := replayed(t, l, append(data, fs.Files[segmentFormat.Name(l.tail.Last)].Data...)); n != frames+1 {
			t.Fatalf("%d frames after one more append, want %d", n, frames+1)
		}
	})
}

// replayed returns how many frames Replay reads, and checks that each is in data.
func replayed(t *testing.T, l *Log, data []byte) (n int) {
	t.Helper()
	var last Position
	err := l.Replay(func(pos Position, r Frame) error {
		if pos <= last {
			t.Fatalf("position %d follows position %d", pos, last)
		}
		last = pos
		n++
		// The file may have another mark, so the mark is not compared.
		if whole := frame(0, r.Shard, r.Type, pos, r.Payload); !bytes.Contains(data, whole[markBytes:]) {
			t.Fatalf("frame %d, which has %d bytes, was invented", pos, len(r.Payload))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever bytes a checkpoint has, a start works, and each section that it loads is in the file
// byte for byte, in one frame or in pieces.
func FuzzCheckpoint(f *testing.F) {
	fs, _ := sample(f)
	for name, file := range fs.Files {
		if base, ok := checkpointFormat.ParseName(name); ok {
			f.Add(file.Data, uint16(base))
		}
	}
	cut, _ := cutSections(f)
	f.Add(cut.Files[checkpointFormat.Name(3)].Data, uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, base uint16) {
		if len(data)%2 == 0 {
			data = append(segment.AppendHeader(nil, checkpointFormat.Magic, testMark, Position(base)), data...)
		}
		fs := memfs.New()
		fs.Files[checkpointFormat.Name(Position(base))] = &memfs.File{Data: data}
		l, _, err := Open(fs, Options{Mark: testMark})
		if err != nil {
			return
		}
		err = l.Load(func(shard uint16, pos Position, payload []byte) error {
			if whole := frame(0, shard, sectionFrame, pos, payload); bytes.Contains(data, whole[markBytes:]) {
				return nil
			}
			var pieces []byte // in their order in the file
			for i, at := range l.plan.sections[shard].frames {
				typ := uint8(pieceFrame)
				if i == len(l.plan.sections[shard].frames)-1 {
					typ = lastPieceFrame
				}
				n := at.length - pieceBytes
				pieces = append(pieces, frame(order.Uint32(data[at.offset:]), shard, typ, pos,
					append(order.AppendUint32(nil, uint32(i)), payload[:n]...))...)
				payload = payload[n:]
			}
			if len(pieces) == 0 || len(payload) > 0 || !bytes.Contains(data, pieces) {
				t.Fatalf("section of shard %d was invented", shard)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
