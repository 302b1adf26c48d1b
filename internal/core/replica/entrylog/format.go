package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// The layout is drawn in docs/format/entrylog.md.
const (
	// MaxEntry limits the data of an entry, in bytes. A greater length is damage, so a reader never
	// allocates more.
	MaxEntry = 16 << 20

	// beginBytes is the size of the first write of a segment: its header and its head, which is padded
	// with zeros. If the last segment has at most this size and cannot be read, its first write was
	// torn, and nothing depends on it. A larger segment had later writes, so it is damaged.
	beginBytes = 512
	headBytes  = beginBytes - segment.HeaderBytes - segment.FrameBytes - segment.StampBytes

	termBytes = 8 // before the data of an entry

	// maxUnsynced is the largest number of unsynced frames that a tag can hold.
	maxUnsynced = 1<<24 - 1
)

// Types of frames.
const (
	headFrame   = 1 + iota // only the first frame of each segment
	stateFrame             // term, vote, commit
	entryFrame             // an entry
	changeFrame            // an entry whose data is a change of the members
)

var format = segment.Format{Noun: "segment of the entry log", Magic: "FRSHENTR", Suffix: ".segment",
	MaxPayload: termBytes + MaxEntry, Stamped: true,
	Accept: func(tag uint32) bool { return typeOf(tag) >= headFrame && typeOf(tag) <= changeFrame }}

var order = binary.LittleEndian

// tag returns the tag of a frame: its type, and how many frames right before it were not synced
// when it was written.
func tag(typ uint8, unsynced uint64) uint32 { return uint32(typ) | uint32(unsynced)<<8 }

func typeOf(tag uint32) uint8 { return uint8(tag) }

// syncedBefore returns the last position that was synced when the frame was written.
func syncedBefore(f *segment.Frame) segment.Position {
	return f.Pos - 1 - min(f.Pos-1, segment.Position(f.Tag>>8))
}

// head is the first frame of a segment. It describes the log before the segment's first entry, so
// that all earlier segments can be removed.
type head struct {
	base    uint64 // index before the segment's first entry; entries above it in earlier segments do not count
	term    uint64 // of the entry at base
	state   State
	members *raftpb.ConfState // as of base
}

var errMembers = errors.New("too many members for the head of a segment")

// payload returns the payload of the head's frame. The stamp of that frame is base.
func (h *head) payload() ([]byte, error) {
	b := make([]byte, 0, headBytes)
	for _, v := range []uint64{h.term, h.state.Term, h.state.Vote, h.state.Commit} {
		b = order.AppendUint64(b, v)
	}
	for _, ids := range lists(h.members) {
		b = binary.AppendUvarint(b, uint64(len(*ids)))
		for _, id := range *ids {
			b = binary.AppendUvarint(b, id)
		}
	}
	leave := byte(0)
	if h.members.GetAutoLeave() {
		leave = 1
	}
	if b = append(b, leave); len(b) > headBytes {
		return nil, errMembers
	}
	return b[:headBytes], nil
}

// lists returns the members in the order in which they are written.
func lists(m *raftpb.ConfState) []*[]uint64 {
	return []*[]uint64{&m.Voters, &m.Learners, &m.VotersOutgoing, &m.LearnersNext}
}

func parseHead(f *segment.Frame) (h head, err error) {
	b := f.Payload
	if len(b) != headBytes {
		return h, fmt.Errorf("the head has %d bytes, not %d", len(b), headBytes)
	}
	h = head{base: f.Stamp, term: order.Uint64(b), members: &raftpb.ConfState{},
		state: State{Term: order.Uint64(b[8:]), Vote: order.Uint64(b[16:]), Commit: order.Uint64(b[24:])}}
	b = b[32:]
	for _, ids := range lists(h.members) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > headBytes {
			return h, errors.New("the members in the head are cut short")
		}
		b = b[size:]
		for range n {
			id, size := binary.Uvarint(b)
			if size <= 0 {
				return h, errors.New("the members in the head are cut short")
			}
			*ids, b = append(*ids, id), b[size:]
		}
	}
	if len(b) == 0 {
		return h, errors.New("the members in the head are cut short")
	}
	h.members.AutoLeave = new(b[0] == 1)
	if h.state.Commit > h.base || h.base >= math.MaxInt64 {
		return h, fmt.Errorf("the head says that entry %d is committed, but the segment begins with entry %d",
			h.state.Commit, h.base+1)
	}
	return h, nil
}

// appendState appends the payload of a state's frame; its stamp is the commit index.
func appendState(b []byte, s State) []byte {
	return order.AppendUint64(order.AppendUint64(b, s.Term), s.Vote)
}

func parseState(f *segment.Frame) (State, error) {
	if len(f.Payload) != 16 {
		return State{}, fmt.Errorf("a state has %d bytes, not 16", len(f.Payload))
	}
	return State{Term: order.Uint64(f.Payload), Vote: order.Uint64(f.Payload[8:]), Commit: f.Stamp}, nil
}

// appendEntry appends the payload of an entry's frame; its stamp is the index.
func appendEntry(b []byte, e *Entry) []byte {
	return append(order.AppendUint64(b, e.Term), e.Data...)
}

// parseEntry returns the entry of a frame. The data of the entry shares the frame's memory.
func parseEntry(f *segment.Frame) (Entry, error) {
	if len(f.Payload) < termBytes {
		return Entry{}, fmt.Errorf("an entry has %d bytes, fewer than its term", len(f.Payload))
	}
	e := Entry{Index: f.Stamp, Term: order.Uint64(f.Payload), Change: typeOf(f.Tag) == changeFrame}
	if len(f.Payload) > termBytes {
		e.Data = f.Payload[termBytes:]
	}
	return e, nil
}

func entryType(e *Entry) uint8 {
	if e.Change {
		return changeFrame
	}
	return entryFrame
}
