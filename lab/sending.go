package main

import (
	"context"
	"errors"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
)

// sending is a load on its way to a receiver.
type sending struct {
	*loadgen.Client
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned; the fields below are set by then
	result loadgen.Result
	err    error
}

// road says how a load is sent to a receiver.
type road struct {
	network   string
	segmented bool // the sender passes many datagrams to the kernel as one
	bursts    bool // the sender sleeps for a millisecond between packets
	on        cpus // the cores of the sending thread
}

// send starts to send at a rate. It stops when the caller calls `end` or when the pace's duration is
// over. It sends evenly, since bursts save a blocking receiver some wake-ups, unless the road wants
// bursts. Segmented datagrams always are a burst.
func send(ctx context.Context, p *running, by road, traffic *load.Load, pace loadgen.Pace) (*sending, error) {
	sender, err := loadgen.Open(loadgen.Config{Network: by.network, Address: p.addresses[by.network], GSO: by.segmented})
	if err != nil {
		return nil, err
	}
	s := &sending{Client: sender, done: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	pace.Even = !by.segmented && !by.bursts
	go func() {
		defer close(s.done)
		restore, err := by.on.pin()
		if err != nil {
			s.err = err
			return
		}
		s.result, err = sender.Run(ctx, traffic, pace)
		s.err = errors.Join(err, restore())
	}()
	return s, nil
}

// over reports whether sending has ended, which may be due to an error.
func (s *sending) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait returns the result once the pace's duration is over.
func (s *sending) wait() (loadgen.Result, error) {
	<-s.done
	s.cancel()
	return s.result, errors.Join(s.err, s.Close())
}

// end stops sending and returns the result.
func (s *sending) end() (loadgen.Result, error) {
	s.cancel()
	return s.wait()
}

// sendFor sends for a while. It returns the result, and how many of the sent metrics the receiver counted.
func sendFor(ctx context.Context, p *running, by road, traffic *load.Load,
	pace loadgen.Pace) (loadgen.Result, uint64, error) {
	before, err := p.received(ctx)
	if err != nil {
		return loadgen.Result{}, 0, err
	}
	s, err := send(ctx, p, by, traffic, pace)
	if err != nil {
		return loadgen.Result{}, 0, err
	}
	result, err := s.wait()
	if err != nil {
		return result, 0, err
	}
	received, err := p.settle(ctx, before, result.Sent, 1500*time.Millisecond) // more than a window, which lasts a second
	return result, received, err
}
