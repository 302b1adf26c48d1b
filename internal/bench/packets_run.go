package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/load"
)

// packetBench is a measurement of one server.
type packetBench struct {
	load        load.Config
	newContexts float64 // per second
	pace        pace
	runs        int
	findMax     bool

	to         string
	sender     loadgen.Config
	server     apiclient.Server // the server to measure; if it has no address, bench starts one
	role       string           // this and the next two fields: only for a server that bench starts
	serveFlags []string         // flags for a server that bench starts
	pin        bool

	asJSON bool
	view   terminal.View
	line   *terminal.Line
}

// pace is how fast metrics are sent, and how long they are measured.
type pace struct {
	rate     float64 // metrics a second; 0 for as fast as possible
	duration time.Duration
}

// packetMeasurement runs a load against a receiver, as often as needed.
type packetMeasurement struct {
	*packetBench
	receiver *receiver
	sender   *loadgen.Client
	traffic  *load.Load
	title    string // title of the present step, for the progress line
}

// moment is the state of sender and receiver at one time.
type moment struct {
	at      time.Time
	sent    load.Totals
	figures answer.Process
}

func (m *packetMeasurement) now(ctx context.Context) (moment, error) {
	figures, err := m.receiver.figures(ctx)
	return moment{time.Now(), m.sender.Progress(), figures}, err
}

// warmUp is how long a load runs before it is measured. Meanwhile, connections open, the first windows
// pass, and the receiver learns the rate.
const warmUp = time.Second

// A new context costs a receiver much more than a known context. If a load has many contexts, bench
// first sends each of them once, at a moderate rate at which none is lost. So the measurement shows
// the cost of known contexts.
const (
	fewContexts  = 10_000
	introduction = 100_000 // metrics a second
)

// introduce sends each context once, if there are many.
func (m *packetMeasurement) introduce(ctx context.Context, p pace) error {
	if m.load.Contexts <= fewContexts {
		return nil
	}
	if p.rate == 0 || p.rate > introduction {
		p.rate = introduction
	}
	_, err := m.sendWhile(ctx, p.rate, func(ended chan sendingEnd) error {
		return m.until(ctx, ended, "introducing contexts", func() bool {
			sent := m.sender.Progress()
			return sent.Metrics-sent.NewContexts >= uint64(m.load.Contexts)
		})
	})
	return err
}

// run sends the load, measures it, and checks the books afterwards.
func (m *packetMeasurement) run(ctx context.Context, p pace) (packetRun, error) {
	var from, to moment
	r, err := m.sendWhile(ctx, p.rate, func(ended chan sendingEnd) (err error) {
		from, to, err = m.observe(ctx, p.duration, ended)
		return err
	})
	if err == nil && from.sent.Metrics == to.sent.Metrics {
		err = errors.New("nothing was sent during the measurement: other processes used the sender's core, " +
			"or the receiver has stopped reading")
	}
	r.Cost = costBetween(from, to, float64(r.ReceivedSamples)/float64(max(1, r.SentSamples)))
	return r, err
}

// sendWhile sends the load until `watch` returns, and checks the books afterwards.
func (m *packetMeasurement) sendWhile(ctx context.Context, rate float64,
	watch func(ended chan sendingEnd) error) (packetRun, error) {
	before, err := m.receiver.books(ctx)
	if err != nil {
		return packetRun{}, err
	}
	if before.Probing {
		return packetRun{},
			fmt.Errorf("%s sends itself a probe each second, and its books cannot tell the probe from the load: "+
				"start it with --self-probe=false, or leave out --server to measure a started receiver", m.receiver.server)
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan sendingEnd, 1)
	go m.send(sending, rate, ended)
	err = watch(ended)
	stop()
	end := <-ended
	if err == nil {
		err = end.err
	}
	if err != nil {
		return packetRun{}, err
	}
	r := newPacketRun(end.Result)
	m.show("waiting for the books")
	after, err := m.settle(ctx, before, r)
	if err != nil {
		return r, err
	}
	return r, r.enter(before, after, uint64(m.traffic.PacketMetrics()))
}

// sendingEnd is the result of the sender and its error.
type sendingEnd struct {
	loadgen.Result
	err error
}

func (m *packetMeasurement) send(ctx context.Context, rate float64, ended chan<- sendingEnd) {
	var end sendingEnd
	send := func() (err error) {
		// Packets are spread evenly, because bursts wake a receiver less often. With GSO this is
		// impossible: packets sent in one message are a burst.
		end.Result, err = m.sender.Run(ctx, m.traffic, loadgen.Pace{Rate: rate, Even: !m.packetBench.sender.GSO})
		return err
	}
	if !m.pin {
		end.err = send()
	} else if cores, err := allowedCores(); err != nil {
		end.err = err
	} else {
		end.err = onCore(cores[0], send)
	}
	ended <- end
}

// observe waits for the warm-up and the measured time, and returns the moments at the beginning and
// the end of the measured time.
func (m *packetMeasurement) observe(ctx context.Context, d time.Duration,
	ended chan sendingEnd) (from, to moment, err error) {
	passed := func(since time.Time, d time.Duration) func() bool {
		return func() bool { return time.Since(since) >= d }
	}
	if err := m.until(ctx, ended, "warming up", passed(time.Now(), warmUp)); err != nil {
		return from, to, err
	}
	if from, err = m.now(ctx); err != nil {
		return from, to, err
	}
	if err := m.until(ctx, ended, "measuring", passed(from.at, d)); err != nil {
		return from, to, err
	}
	to, err = m.now(ctx)
	return from, to, err
}

// until waits for `done` to return true, and shows the load's progress.
func (m *packetMeasurement) until(ctx context.Context, ended chan sendingEnd, doing string, done func() bool) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
			m.show(doing + ", " + terminal.Thousands(m.sender.Progress().Metrics) + " metrics sent")
		case end := <-ended:
			ended <- end
			if end.err == nil {
				return context.Cause(ctx)
			}
			return end.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (m *packetMeasurement) show(doing string) { m.line.Draw(m.title + ": " + doing) }

// costBetween returns the receiver's cost between two moments, per received metric. `received` is
// the fraction of the sent metrics that the receiver got.
func costBetween(a, b moment, received float64) packetCost {
	seconds, sent := b.at.Sub(a.at).Seconds(), float64(b.sent.Metrics-a.sent.Metrics)
	user := b.figures.CPUUserSeconds - a.figures.CPUUserSeconds
	system := b.figures.CPUSystemSeconds - a.figures.CPUSystemSeconds
	per := func(v float64) float64 {
		if received == 0 {
			return 0 // without metrics there is no cost
		}
		return v / (sent * received)
	}
	return packetCost{
		Seconds: seconds, SentPerSecond: sent / seconds,
		CPUMicros: per(1e6 * (user + system)), CPUUserMicros: per(1e6 * user), CPUSystemMicros: per(1e6 * system),
		CPUPercent:     100 * (user + system) / seconds,
		GCPercent:      100 * (b.figures.GCCPUSeconds - a.figures.GCCPUSeconds) / max(user+system, 1e-6),
		GCCycles:       float64(b.figures.GCCycles - a.figures.GCCycles),
		Allocations:    per(float64(b.figures.AllocatedObjectsTotal - a.figures.AllocatedObjectsTotal)),
		AllocatedBytes: per(float64(b.figures.AllocatedBytesTotal - a.figures.AllocatedBytesTotal)),
		ResidentBytes:  float64(b.figures.ResidentBytes), MaxResidentBytes: float64(b.figures.MaxResidentBytes),
		HeapLiveBytes: float64(b.figures.HeapLiveBytes),
	}
}
