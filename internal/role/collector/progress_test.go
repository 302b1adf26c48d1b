package collector

import (
	"context"
	"errors"
	"testing"
	"time"
)

// tickAll moves the clock of all listeners to a second, and lets the flusher take the windows that
// they close.
func (f *fixture) tickAll(t *testing.T, at int64) {
	t.Helper()
	for _, l := range f.listeners() {
		l.Tick(at * 1e9)
	}
	f.flushAll(t.Context())
}

// The collector reports a second to the aggregator when each listener has closed its window of that
// second, empty or not, and the flusher has pushed all of them.
func TestTheAggregatorKnowsHowFarItHasAllWindows(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(second+1000, 0) } })
	all := f.listeners()
	if len(all) < 2 {
		t.Fatal("two listeners are needed")
	}
	for _, l := range all {
		f.windows.begin(l.mark, second)
	}
	f.tickAll(t, second)
	all[0].Packet([]byte("a:1|c"), second*1e9)
	f.tickAll(t, second+1)
	f.tickAll(t, second+2)
	f.flusher.tell()
	if got := f.aggregator.told(); got != second+2 {
		t.Errorf("after both windows are closed, one of them empty, progress is %d s after the first second, want 2",
			got-second)
	}
	// One listener has not closed its window yet. That window may have samples.
	for _, l := range all[1:] {
		l.Tick((second + 3) * 1e9)
	}
	f.flusher.tell()
	if got := f.aggregator.told(); got != second+2 {
		t.Errorf("while a listener has not closed its window, progress is %d s after the first second, want 2",
			got-second)
	}
	all[0].Packet([]byte("a:1|c"), (second+3)*1e9-1)
	all[0].Tick((second + 3) * 1e9)
	f.flusher.tell()
	if got := f.aggregator.told(); got != second+2 {
		t.Errorf("while a window is not pushed, progress is %d s after the first second, want 2", got-second)
	}
	f.flushAll(t.Context())
	f.flusher.tell()
	if got := f.aggregator.told(); got != second+3 {
		t.Errorf("when all windows are pushed, progress is %d s after the first second, want 3", got-second)
	}
}

// While a push is retried, the collector reports no later second to the aggregator. When the window
// is accepted, progress continues.
func TestAWindowThatIsNotTakenHoldsTheProgress(t *testing.T) {
	f := newFixture(t, nil).start(t)
	await(t, "empty windows", func() bool { return f.aggregator.told() > 0 })
	f.aggregator.refuse(errors.New("the disk is full"))
	send(t, dial(t, "udp", f.address("udp")), "a:1|c")
	await(t, "a push that fails", func() bool { return len(f.aggregator.refusals()) > 0 })
	stalled := f.aggregator.told()
	await(t, "more pushes that fail", func() bool { return len(f.aggregator.refusals()) > 3 })
	if got := f.aggregator.told(); got != stalled {
		t.Errorf("while a window was refused, progress moved by %d s, want 0", got-stalled)
	}
	f.aggregator.refuse(nil)
	await(t, "progress", func() bool { return f.aggregator.told() > stalled+1 })
}

// Without a socket all windows are empty, so the collector reports the present second.
func TestWithoutSocketsAllWindowsAreEmpty(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Config.UDP, o.Config.Unixgram, o.Config.Unix = "", "", "" }).start(t)
	for range 2 {
		was := f.aggregator.told()
		await(t, "progress", func() bool { return f.aggregator.told() > was })
	}
}

// A removed listener does not delay the progress after its last window was pushed.
func TestAListenerThatIsGoneHoldsNothingUp(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Config.Unixgram, o.Config.Unix = "", "" }).start(t)
	config := f.Config
	config.UDP = ""
	r, err := f.Prepare(config, f.Mapper, f.Host)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	was := f.aggregator.told()
	await(t, "progress", func() bool { return f.aggregator.told() > was+1 })
}
