package collector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// maxTaps bounds the time that taps cost the readers, and the memory of taps.
	maxTaps = 4

	// Sizes of each of a tap's two buffers: one buffer fills while the user reads the other.
	// A buffer holds 80 ms of traffic at 400,000 datagrams a second. A tap takes at most 30
	// MiB.
	tapBytes   = 8 << 20
	tapPackets = 1 << 15

	// tapPause is how long a tap collects datagrams before it wakes its user. A wake-up for each
	// datagram would cost the reader more than the copy.
	tapPause = 10 * time.Millisecond
)

// ErrTaps means that no further tap can be opened now.
var ErrTaps = fmt.Errorf("%d taps are open, which is the limit; end a freshet tail or a freshet capture first",
	maxTaps)

// taps are the open taps.
type taps struct {
	open   atomic.Pointer[[]*Tap] // nil if no tap is open; the slice itself never changes
	mu     sync.Mutex             // held to replace `open`
	missed atomic.Uint64
}

// TapOptions select the datagrams of a tap.
type TapOptions struct {
	Tenant   string
	Listener string  // NETWORK://ADDRESS; empty: all
	Share    float64 // fraction of the datagrams to copy, chosen at random; 1 means all
}

// Tap gets a copy of arriving datagrams, for one user. Readers never wait for it: datagrams
// that do not fit are missed, and counted.
type Tap struct {
	TapOptions
	all     *taps
	watch   func(on bool)
	arrived chan struct{} // capacity 1: signals datagrams

	mu      sync.Mutex // held for no longer than a copy takes
	filling tapBuffer
	missed  uint64 // datagrams missed since the last Next; they came after the datagrams in `filling`

	// Used by Next.
	full      tapBuffer
	datagrams []capture.Datagram
	addresses map[net.Addr]string
}

// tapBuffer has datagrams, one after the other in `data`.
type tapBuffer struct {
	data    []byte
	packets []tapped
}

type tapped struct {
	network string
	address net.Addr
	time    int64
	sender  sender.Sender
	end     int // end of the datagram in tapBuffer.data
}

// begin opens a tap. `watch` turns the report of senders on and off.
func (a *taps) begin(o TapOptions, watch func(on bool)) (*Tap, error) {
	t := &Tap{TapOptions: o, all: a, watch: watch, arrived: make(chan struct{}, 1), addresses: map[net.Addr]string{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	open := a.all()
	if len(open) == maxTaps {
		return nil, ErrTaps
	}
	watch(true)
	open = append(slices.Clone(open), t)
	a.open.Store(&open)
	return t, nil
}

// Close ends the tap. Next must not be called afterwards.
func (t *Tap) Close() {
	all := t.all
	all.mu.Lock()
	defer all.mu.Unlock()
	open := slices.DeleteFunc(slices.Clone(all.all()), func(o *Tap) bool { return o == t })
	if len(open) == 0 {
		all.open.Store(nil)
	} else {
		all.open.Store(&open)
	}
	t.watch(false)
}

func (a *taps) all() []*Tap {
	if open := a.open.Load(); open != nil {
		return *open
	}
	return nil
}

// tap copies a packet to the open taps. The reader calls it.
func (l *listener) tap(open []*Tap, packet []byte, now int64) {
	for _, t := range open {
		if t.Tenant == l.terms.tenant && (t.Share >= 1 || rand.Float64() < t.Share) {
			t.add(packet, tapped{network: l.address.network, address: l.socket.Addr(), time: now, sender: l.socket.Sender()})
		}
	}
}

// add copies a packet. It does not wait for the tap's user.
func (t *Tap) add(packet []byte, p tapped) {
	t.mu.Lock()
	if b := &t.filling; len(b.packets) == tapPackets || len(b.data)+len(packet) > tapBytes {
		t.missed++
		t.all.missed.Add(1)
	} else {
		b.data = append(b.data, packet...)
		p.end = len(b.data)
		b.packets = append(b.packets, p)
	}
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default: // already signaled
	}
}

// Next waits for datagrams and returns them, and how many were missed after them. The datagrams are
// valid until the next call. Next fails only if ctx ends.
func (t *Tap) Next(ctx context.Context) (all []capture.Datagram, missed uint64, err error) {
	select {
	case <-t.arrived:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	pause := time.NewTimer(tapPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done(): // return the datagrams that have arrived
	}
	t.full.data, t.full.packets = t.full.data[:0], t.full.packets[:0]
	t.mu.Lock()
	t.filling, t.full = t.full, t.filling
	missed, t.missed = t.missed, 0
	t.mu.Unlock()
	return t.take(), missed, nil
}

// take converts the datagrams of the full buffer to capture.Datagram.
func (t *Tap) take() []capture.Datagram {
	t.datagrams = t.datagrams[:0]
	start := 0
	for _, p := range t.full.packets {
		data := t.full.data[start:p.end:p.end]
		start = p.end
		address, ok := t.addresses[p.address]
		if !ok {
			address = p.address.String()
			t.addresses[p.address] = address
		}
		if t.Listener != "" && t.Listener != p.network+"://"+address {
			continue
		}
		t.datagrams = append(t.datagrams, capture.Datagram{
			Time: p.time, Network: p.network, Address: address, Data: data,
			Sender: p.sender,
		})
	}
	return t.datagrams
}

var (
	descTaps = prometheus.NewDesc("freshet_taps",
		"Open taps of freshet tail and freshet capture. Each costs the readers a copy of every datagram.", nil, nil)
	descTapMissed = prometheus.NewDesc("freshet_tap_missed_packets_total",
		"Datagrams that taps missed because their user was too slow. The datagrams themselves were counted as usual.", nil,
		nil)
)

// Describe is part of prometheus.Collector.
func (a *taps) Describe(out chan<- *prometheus.Desc) { out <- descTaps; out <- descTapMissed }

// Collect is part of prometheus.Collector.
func (a *taps) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(descTaps, prometheus.GaugeValue, float64(len(a.all())))
	out <- prometheus.MustNewConstMetric(descTapMissed, prometheus.CounterValue, float64(a.missed.Load()))
}
