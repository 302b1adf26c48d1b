// Package quorum writes to several replicas at once, and says what became of it as soon as
// more than half of them have it, or cannot have it any more. Which replicas there are is
// placement's business, and how one is reached is the caller's.
package quorum

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// Job is one write to replicas of type R, with the memory that it needs.
type Job[R any] interface {
	// Write writes to one replica, and says what became of it there. It is called once for
	// each, at the same time if there are several, and itself bounds how long it takes. An
	// error means that the replica did not take the write: a *MistakeError if none would,
	// anything else if the same write may be repeated.
	Write(replica R) (outcome.Outcome, error)

	// Failed is told of the error of each replica, whether anybody still waits for it or
	// not, as Write is called. A panic is a *PanicError.
	Failed(replica R, err error)

	// Done is called once, after everything else: from then on the memory is free. What
	// bounds the memory of all writes must count this one until then.
	Done()
}

// ErrNotReached means that too few of several replicas took a write. Some may have it:
// callers may repeat it, because ingesters accept the same sample twice. What it wraps
// says whether that helps: not if it is a *MistakeError.
var ErrNotReached = errors.New("quorum not reached")

// MistakeError is the sender's own mistake: the write would fail anywhere, and again.
type MistakeError struct{ Cause error }

func (e *MistakeError) Error() string { return e.Cause.Error() }
func (e *MistakeError) Unwrap() error { return e.Cause }

// PanicError is a panic in Write, which costs no more than this write to that replica.
type PanicError struct {
	Value any
	Stack []byte // of the panic, for the log
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// errEnded is the error of a Write that ended its goroutine, and neither returned nor panicked.
var errEnded = errors.New("it ended without an answer")

// answer is what a replica has to say.
type answer struct {
	outcome outcome.Outcome
	err     error
}

// Write has a job done by replicas: all that the placement has, healthy or not, since one
// that is left out would make a quorum smaller. It returns as soon as a quorum has written,
// or mistakes or other errors alone are too many for one, or all have answered. The others
// go on. A replica that is alone is called straight, in the caller's goroutine: its error
// and its panic are the caller's as they are.
//
// The Outcome is that of one replica, so that its counts add up to the request: of those
// whose answers made the quorum, the one that refused most. Replicas mostly refuse the same
// or one of them more, and then each of the quorum has what counts as written. To wait
// for another that refused less would make a hanging replica felt.
//
// Of mistakes and other errors, those that are more give the error, and mistakes if they
// are as many. Source: Cortex, pkg/ring/batch.go.
func Write[R any](replicas []R, job Job[R]) (outcome.Outcome, error) {
	switch len(replicas) {
	case 0:
		job.Done()
		return outcome.Outcome{}, fmt.Errorf("%w: there is no replica", ErrNotReached)
	case 1:
		defer job.Done()
		o, err := job.Write(replicas[0])
		if err != nil {
			job.Failed(replicas[0], err)
		}
		return o, err
	}
	return wait(start(replicas, job), len(replicas))
}

// start starts a goroutine for each replica. All answers have room in the channel, so that
// none of them needs anybody to wait for it.
func start[R any](replicas []R, job Job[R]) <-chan answer {
	answers := make(chan answer, len(replicas))
	var running atomic.Int32
	running.Store(int32(len(replicas)))
	for _, replica := range replicas {
		go func() {
			a := answer{err: errEnded}
			defer func() {
				if p := recover(); p != nil {
					a.err = &PanicError{p, debug.Stack()}
				}
				if a.err != nil {
					job.Failed(replica, a.err)
				}
				answers <- a
				if running.Add(-1) == 0 {
					job.Done()
				}
			}()
			a.outcome, a.err = job.Write(replica)
		}()
	}
	return answers
}

// wait waits for a quorum of so many replicas.
func wait(answers <-chan answer, replicas int) (outcome.Outcome, error) {
	need := replicas/2 + 1
	var written outcome.Outcome
	var writers int
	var mistakes, faults []error
	for range replicas {
		a := <-answers
		var mistake *MistakeError
		switch {
		case a.err == nil:
			if writers == 0 || refused(&a.outcome) > refused(&written) {
				written = a.outcome
			}
			if writers++; writers == need {
				return written, nil
			}
		case errors.As(a.err, &mistake):
			mistakes = append(mistakes, a.err)
		default:
			faults = append(faults, a.err)
		}
		if max(len(mistakes), len(faults)) > replicas-need {
			break
		}
	}
	family := mistakes
	if len(faults) > len(mistakes) {
		family = faults
	}
	return outcome.Outcome{}, fmt.Errorf("%w: %d of %d replicas have the write so far, and %d must: %w", ErrNotReached, writers, replicas, need, family[0])
}

func refused(o *outcome.Outcome) int {
	all := o.AllRefused()
	return all.Total()
}
