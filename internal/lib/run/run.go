// Package run starts the parts of a process, each as soon as the parts that it needs are ready. It
// stops the parts in reverse order, each only after all parts that feed it have ended.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Part is a part of a process, such as a role.
type Part struct {
	Name string

	// Run works until ctx ends. Then it hands everything that the part still holds to the parts listed
	// before this part, which run until Run has returned. When Run returns, nothing that it started is
	// still running. If Run returns before ctx ends, with or without an error, all parts are stopped.
	Run func(ctx context.Context) error

	// After is closed when everything that the part needs is ready. Run is called only then, or at once
	// if After is nil. Other parts do not wait for this part. If all parts are stopped before After is
	// closed, Run is never called.
	After <-chan struct{}
}

var errEndedEarly = errors.New("ended without being asked to")

// Run starts parts. When ctx or a part ends, Run stops all parts in reverse order, and waits for at
// most `drain`. The error joins the errors of the parts, each with the part's name; a part that
// ends because it was stopped is no error. After `drain`, Run asks all remaining parts to stop at
// once, names them in the error, and returns without them: the process should exit.
func Run(ctx context.Context, drain time.Duration, parts ...Part) error {
	ended := make(chan struct{}, len(parts)) // one element for each part that has returned
	var started []*running
	for _, p := range parts {
		if started = append(started, start(ctx, p, ended)); ctx.Err() != nil {
			return stop(started, drain)
		}
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return stop(started, drain)
}

// running is a part that was started.
type running struct {
	Part
	cancel  context.CancelFunc
	stopped bool          // it was asked to stop
	done    chan struct{} // closed when Run has returned
	err     error         // returned by Run; read it only after done is closed
}

// start runs p in its own context: the end of ctx reaches the parts one by one, so that no
// part stops before the parts that feed it.
func start(ctx context.Context, p Part, ended chan<- struct{}) *running {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Part: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		if r.waitAfter(own) {
			r.err = p.Run(own)
		}
		close(r.done)
		ended <- struct{}{}
	}()
	return r
}

// waitAfter waits until the part may start, and reports false if ctx ends first.
func (r *running) waitAfter(ctx context.Context) bool {
	if r.After == nil {
		return true
	}
	select {
	case <-r.After:
		return true
	case <-ctx.Done():
		return false
	}
}

// stop stops the started parts, the last one first.
func stop(started []*running, drain time.Duration) error {
	late := time.NewTimer(drain)
	defer late.Stop()
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
		r.tell()
		select {
		case <-r.done:
			errs = append(errs, r.outcome())
		case <-late.C:
			return errors.Join(append(errs, abandon(started[:i+1], drain)...)...)
		}
	}
	return errors.Join(errs...)
}

// tell asks the part to stop, unless it has already ended.
func (r *running) tell() {
	select {
	case <-r.done:
	default:
		r.stopped = true
	}
	r.cancel()
}

// outcome returns the error of a part that has returned.
func (r *running) outcome() error {
	switch {
	case r.stopped && errors.Is(r.err, context.Canceled):
		return nil
	case r.err != nil:
		return fmt.Errorf("%s: %w", r.Name, r.err)
	case !r.stopped:
		return fmt.Errorf("%s: %w", r.Name, errEndedEarly)
	}
	return nil
}

// abandon asks the remaining parts to stop, since the time is up, and names the parts that have not
// ended. What these parts hold in memory is lost, as in a crash.
func abandon(rest []*running, drain time.Duration) []error {
	var errs []error
	for i := len(rest) - 1; i >= 0; i-- {
		r := rest[i]
		r.tell()
		select {
		case <-r.done:
			errs = append(errs, r.outcome())
		default:
			errs = append(errs, fmt.Errorf("%s: still running after the %s for draining", r.Name, drain))
		}
	}
	return errs
}
