package peer

import (
	"errors"
	"fmt"
	"maps"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/ruleset"
)

// NotLeaderError is a replica.ErrNotLeader that names the leader.
type NotLeaderError struct{ Leader, Address string }

// Error names the leader.
func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("%v; node %s at %s leads", replica.ErrNotLeader, e.Leader, e.Address)
}

// Unwrap returns replica.ErrNotLeader.
func (e *NotLeaderError) Unwrap() error { return replica.ErrNotLeader }

// sentinels are the errors that errors.Is recognizes on the other side. An error is sent as the first
// sentinel that matches.
var sentinels = []struct {
	kind wire.Error_Kind
	err  error
}{
	{wire.Error_NOT_LEADER, replica.ErrNotLeader},
	{wire.Error_LOST, member.ErrLost},
	{wire.Error_FATE_UNKNOWN, member.ErrUnknown},
	{wire.Error_MOVED, member.ErrMoved},
	{wire.Error_FULL, member.ErrFull},
	{wire.Error_QUEUE_FULL, replica.ErrFull},
	{wire.Error_UNSYNCED, batch.ErrUnsynced},
	{wire.Error_REFUSED, batch.ErrRefused},
	{wire.Error_NOT_ADMITTED, cluster.ErrNotAdmitted},
	{wire.Error_LACKS_ENTRIES, cluster.ErrLacksEntries},
	{wire.Error_NO_RULE_GROUP, ruleset.ErrNoGroup},
	{wire.Error_NO_RULE_NAMESPACE, ruleset.ErrNoNamespace},
	{wire.Error_RULE_MISTAKES, ruleset.ErrMistakes},
	{wire.Error_OLDER, member.ErrOlder},
	{wire.Error_IMPORTED, imports.ErrKnown},
	{wire.Error_NOT_OFFERED, imports.ErrGivenUp},
	{wire.Error_TOO_MANY_IMPORTS, imports.ErrTooMany},
}

// remoteError is an error of another node: its text, and the error that errors.Is recognizes.
type remoteError struct {
	text string
	is   error // may be nil
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// maxErrorText bounds the text of an error, in bytes.
const maxErrorText = 16 << 10

func encodeError(err error) *wire.Error {
	if err == nil {
		return nil
	}
	text := err.Error()
	e := &wire.Error{Text: valid(text[:min(len(text), maxErrorText)])}
	if full := (*batch.FullError)(nil); errors.As(err, &full) {
		e.Kind, e.Samples = wire.Error_TENANTS_FULL, make(map[string]uint64, len(full.Samples))
		for tenant, n := range full.Samples {
			e.Samples[valid(tenant)] += n
		}
		e.Cause = encodeCause(full.Cause)
		return e
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			e.Kind = s.kind
			break
		}
	}
	if leads := (*NotLeaderError)(nil); errors.As(err, &leads) {
		e.Leader, e.Address = valid(leads.Leader), valid(leads.Address)
	}
	return e
}

// encodeCause encodes the cause of a batch.FullError. It leaves out that cause's own cause.
func encodeCause(err error) *wire.Error {
	e := encodeError(err)
	if e != nil {
		e.Cause, e.Samples = nil, nil
		if e.Kind == wire.Error_TENANTS_FULL {
			e.Kind = wire.Error_OTHER
		}
	}
	return e
}

// decodeError is the inverse of encodeError. An unknown kind keeps only its text.
func decodeError(e *wire.Error) error {
	switch {
	case e == nil:
		return nil
	case e.GetKind() == wire.Error_TENANTS_FULL:
		full := &batch.FullError{Samples: maps.Clone(e.GetSamples())}
		if cause := e.GetCause(); cause != nil {
			full.Cause = decodeSimple(cause)
		}
		return full
	case e.GetKind() == wire.Error_NOT_LEADER && e.GetLeader() != "":
		return &NotLeaderError{Leader: e.GetLeader(), Address: e.GetAddress()}
	}
	return decodeSimple(e)
}

func decodeSimple(e *wire.Error) error {
	remote := &remoteError{text: e.GetText()}
	for _, s := range sentinels {
		if s.kind == e.GetKind() {
			remote.is = s.err
		}
	}
	return remote
}
