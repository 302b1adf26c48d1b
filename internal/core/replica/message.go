package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
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

// Append appends the bytes of the message, a Message of Raft's raft.proto.
func (m *Message) Append(dst []byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(dst, m.body)
}

// String describes the message in one line, for logs and for the output of simulations.
func (m *Message) String() string {
	return fmt.Sprintf("%v %d->%d term %d", m.body.GetType(), m.From, m.To, m.body.GetTerm())
}

// ParseMessage is the inverse of Append. It refuses messages that no member would send, since the
// library panics on some of them. It cannot tell whether a valid message is true, so the caller
// must authenticate the sender.
func ParseMessage(b []byte) (Message, error) {
	m := &raftpb.Message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return Message{}, fmt.Errorf("parse a message: %w", err)
	}
	if err := plausible(m); err != nil {
		return Message{}, fmt.Errorf("a message of type %v from member %d: %w", m.GetType(), m.GetFrom(), err)
	}
	return newMessage(m), nil
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

// fromLeader reports whether only a leader sends messages of this type.
func fromLeader(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgHeartbeat
}

// answersOldTerm reports whether the message only tells the sender of a late heartbeat or entry
// that there is a newer term. If that sender leads again in the newer term, Raft treats the answer
// as an acknowledgement of entry 0. It then sends entries from the first one on. If the first one
// was removed from the log, it never sends any entries again.
func answersOldTerm(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgAppResp && m.GetIndex() == 0 && !m.GetReject()
}
