package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message goes from one member to another. It may be lost, delayed and repeated.
type Message struct {
	From, To uint64
	Urgent   bool // has no entries; must not wait behind messages with entries, or members might campaign

	body *raftpb.Message
}

func newMessage(m *raftpb.Message) Message {
	return Message{From: m.GetFrom(), To: m.GetTo(), body: m,
		Urgent: m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgAppResp}
}

// Numbers of fields in Raft's raft.proto.
const (
	fieldEntries = 7 // of Message

	fieldType  = 1 // of Entry
	fieldTerm  = 2
	fieldIndex = 3
	fieldData  = 4
)

// Encode returns the bytes of the message, a Message of Raft's raft.proto, in parts. It does not copy the data of
// entries, which never change: a leader sends them to several members.
func (m *Message) Encode() (parts [][]byte, err error) {
	if len(m.body.GetEntries()) == 0 {
		part, err := proto.Marshal(m.body)
		return [][]byte{part}, err
	}
	head := m.body.ProtoReflect().New() // the message without entries
	m.body.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Number() != fieldEntries {
			head.Set(field, v)
		}
		return true
	})
	part, err := proto.Marshal(head.Interface())
	if err != nil {
		return nil, err
	}
	for _, e := range m.body.GetEntries() {
		size := protowire.SizeTag(fieldType) + protowire.SizeVarint(uint64(e.GetType())) +
			protowire.SizeTag(fieldTerm) + protowire.SizeVarint(e.GetTerm()) +
			protowire.SizeTag(fieldIndex) + protowire.SizeVarint(e.GetIndex()) +
			protowire.SizeTag(fieldData) + protowire.SizeBytes(len(e.GetData()))
		part = protowire.AppendTag(part, fieldEntries, protowire.BytesType)
		part = protowire.AppendVarint(part, uint64(size))
		part = protowire.AppendTag(part, fieldType, protowire.VarintType)
		part = protowire.AppendVarint(part, uint64(e.GetType()))
		part = protowire.AppendTag(part, fieldTerm, protowire.VarintType)
		part = protowire.AppendVarint(part, e.GetTerm())
		part = protowire.AppendTag(part, fieldIndex, protowire.VarintType)
		part = protowire.AppendVarint(part, e.GetIndex())
		part = protowire.AppendTag(part, fieldData, protowire.BytesType)
		part = protowire.AppendVarint(part, uint64(len(e.GetData())))
		parts = append(parts, part, e.GetData())
		part = nil
	}
	return parts, nil
}

// Append appends the bytes of the message: see Encode.
func (m *Message) Append(dst []byte) ([]byte, error) {
	parts, err := m.Encode()
	return slices.Concat(append([][]byte{dst}, parts...)...), err
}

// String describes the message in one line, for logs and for the output of simulations.
func (m *Message) String() string {
	return fmt.Sprintf("%v %d->%d term %d", m.body.GetType(), m.From, m.To, m.body.GetTerm())
}

// ParseMessage is the inverse of Append. It refuses messages that no member would send, since the
// library panics on some of them. It cannot tell whether a valid message is true, so the caller
// must authenticate the sender. The data of entries point into b, which must not change afterwards.
func ParseMessage(b []byte) (Message, error) {
	m, err := parseMessage(b)
	if err != nil {
		return Message{}, fmt.Errorf("parse a message: %w", err)
	}
	if err := plausible(m); err != nil {
		return Message{}, fmt.Errorf("a message of type %v from member %d: %w", m.GetType(), m.GetFrom(), err)
	}
	return newMessage(m), nil
}

// parseMessage does what proto.Unmarshal does, except that it copies no data of entries and drops fields that
// raft.proto does not have.
func parseMessage(b []byte) (*raftpb.Message, error) {
	var all []*raftpb.Entry
	others := make([]byte, 0, 64)
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if number != fieldEntries || kind != protowire.BytesType {
			others = append(others, b[:n]...)
			b = b[n:]
			continue
		}
		_, _, tag := protowire.ConsumeTag(b)
		body, _ := protowire.ConsumeBytes(b[tag:])
		e, err := parseEntry(body)
		if err != nil {
			return nil, err
		}
		all, b = append(all, e), b[n:]
	}
	m := &raftpb.Message{}
	err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(others, m)
	m.Entries = all
	return m, err
}

func parseEntry(b []byte) (*raftpb.Entry, error) {
	e := &raftpb.Entry{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		_, _, tag := protowire.ConsumeTag(b)
		value := b[tag:n:n]
		if kind == protowire.BytesType && number == fieldData {
			e.Data, _ = protowire.ConsumeBytes(value)
		}
		if kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			switch number {
			case fieldType:
				e.Type = raftpb.EntryType(v).Enum()
			case fieldTerm:
				e.Term = &v
			case fieldIndex:
				e.Index = &v
			}
		}
		b = b[n:]
	}
	return e, nil
}

var (
	errType    = errors.New("members do not send this type")
	errSender  = errors.New("it has no sender or no term")
	errContext = errors.New("its context is wrong")
	errEntries = errors.New("its entries do not follow each other")
)

func plausible(m *raftpb.Message) error {
	hasTerm, needsTerm := m.GetTerm() != 0, m.GetType() != raftpb.MsgReadIndex
	if m.GetFrom() == raft.None || raft.IsLocalMsgTarget(m.GetFrom()) || hasTerm != needsTerm {
		return errSender
	}
	if len(m.GetResponses()) > 0 || m.GetSnapshot() != nil {
		return errType
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return plausibleEntries(m)
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		if n := len(m.GetContext()); n != 0 && n != 8 {
			return errContext
		}
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		if len(m.GetEntries()) != 1 || m.GetEntries()[0] == nil {
			return errContext
		}
	case raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgTimeoutNow:
	default:
		return errType
	}
	return nil
}

func plausibleEntries(m *raftpb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() || e.GetType() == raftpb.EntryConfChange {
			return errEntries
		}
		term = e.GetTerm()
	}
	return nil
}

// Campaigns reports whether the sender asks if it would be elected.
func (m *Message) Campaigns() bool { return m.body.GetType() == raftpb.MsgPreVote }

// fromLeader reports whether only a leader sends messages of this type.
func fromLeader(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgHeartbeat
}

// answers reports whether only a follower or a learner sends messages of this type, to its leader.
func answers(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgAppResp || m.GetType() == raftpb.MsgHeartbeatResp
}

// answersOldTerm reports whether the message only tells the sender of a late heartbeat or entry
// that there is a newer term. If that sender leads again in the newer term, Raft treats the answer
// as an acknowledgement of entry 0. It then sends entries from the first one on. If the first one
// was removed from the log, it never sends any entries again.
func answersOldTerm(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgAppResp && m.GetIndex() == 0 && !m.GetReject()
}
