package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/load"
)

// packetRun is the result of one run: the sent packets, the receiver's books about them, and the
// receiver's cost meanwhile. The names of the fields in JSON never change.
type packetRun struct {
	SentPackets          uint64            `json:"sent_packets"`
	SentBytes            uint64            `json:"sent_bytes"` // bytes of payload
	SentSamples          uint64            `json:"sent_samples"`
	SentByKind           map[string]uint64 `json:"sent_samples_by_kind"`
	CounterSum           uint64            `json:"sent_counter_increments"` // sum of the counters' increments
	NewContexts          uint64            `json:"sent_new_contexts"`
	RefusedTimes         uint64            `json:"sender_refused_times"` // how often a Unix socket was full
	SenderDropped        uint64            `json:"sender_dropped_packets"`
	SenderDroppedSamples uint64            `json:"sender_dropped_samples"` // samples in the packets that the sender dropped
	SenderCPUUser        float64           `json:"sender_cpu_user_us_per_metric"`
	SenderCPUSystem      float64           `json:"sender_cpu_system_us_per_metric"`

	ReceivedPackets      uint64 `json:"received_packets"`
	ReceivedSamples      uint64 `json:"received_samples"`
	KernelDroppedPackets uint64 `json:"kernel_dropped_packets"`
	OversizedPackets     uint64 `json:"oversized_packets"`
	LostSamples          uint64 `json:"lost_samples"` // samples in the packets that were lost
	// Samples that a limit folded into the overflow series of the metric.
	FoldedSamples uint64            `json:"received_folded_samples"`
	NotKept       map[string]uint64 `json:"received_not_kept_samples"` // malformed, refused, late; by state and reason

	Cost packetCost `json:"measured"`
}

// packetCost is the cost of the receiver during the load, without the warm-up.
type packetCost struct {
	Seconds          float64 `json:"seconds"`
	SentPerSecond    float64 `json:"sent_metrics_per_second"`
	CPUMicros        float64 `json:"cpu_us_per_metric"` // per received metric, like all figures below
	CPUUserMicros    float64 `json:"cpu_user_us_per_metric"`
	CPUSystemMicros  float64 `json:"cpu_system_us_per_metric"`
	CPUPercent       float64 `json:"cpu_percent_of_a_core"`
	GCPercent        float64 `json:"gc_percent_of_cpu"`
	GCCycles         float64 `json:"gc_cycles"`
	Allocations      float64 `json:"allocations_per_metric"`
	AllocatedBytes   float64 `json:"allocated_bytes_per_metric"`
	ResidentBytes    float64 `json:"resident_bytes"`
	MaxResidentBytes float64 `json:"max_resident_bytes"` // largest resident memory since the receiver started
	HeapLiveBytes    float64 `json:"heap_live_bytes"`
}

// newPacketRun returns what the sender knows about a run.
func newPacketRun(sent loadgen.Result) packetRun {
	r := packetRun{
		SentPackets: sent.Sent.Packets, SentBytes: sent.Sent.Bytes, SentSamples: sent.Sent.Metrics,
		SentByKind: map[string]uint64{},
		CounterSum: sent.Sent.CounterSum, NewContexts: sent.Sent.NewContexts,
		RefusedTimes: sent.Refused, SenderDropped: sent.Dropped.Packets, SenderDroppedSamples: sent.Dropped.Metrics,
		SenderCPUUser:   sent.CPUUser.Seconds() * 1e6 / float64(max(1, sent.Sent.Metrics)),
		SenderCPUSystem: sent.CPUSystem.Seconds() * 1e6 / float64(max(1, sent.Sent.Metrics)),
	}
	for k, n := range sent.Sent.Kinds {
		r.SentByKind[load.Kind(k).String()] = n
	}
	return r
}

// Books are complete at the end of a window, which is a second long. While books still change, the
// receiver is busy with the packets in its buffer.
const (
	settleInterval = 50 * time.Millisecond
	settleLimit    = 10 * time.Second // how long to wait for the next change of the books
	settleMost     = time.Minute      // how long to wait in all: if books still change then, another sender is active
)

// settle waits until the books account for all sent packets or no longer change, at most for
// settleMost, and returns the books.
func (m *packetMeasurement) settle(ctx context.Context, before answer.Ledger, r packetRun) (answer.Ledger, error) {
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	var last answer.Ledger
	begun := time.Now()
	for changed := begun; ; {
		books, err := m.receiver.books(ctx)
		if err != nil {
			return books, err
		}
		if books.Datagrams != last.Datagrams || books.Samples.Received != last.Samples.Received {
			changed = time.Now()
		}
		last = books
		seen := r
		if seen.enter(before, books, uint64(m.traffic.PacketMetrics())) == nil || time.Since(changed) > settleLimit ||
			time.Since(begun) > settleMost {
			return books, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return books, context.Cause(ctx)
		}
	}
}

// errUnexplained means that packets are missing and the receiver has not counted them as lost.
var errUnexplained = errors.New("packets are unexplained")

// enter fills in the outcome of a run from the books. Each packet of the run has `perPacket` metrics;
// the last packets may have fewer. enter returns an error if the books do not account for each
// packet and each sample.
func (r *packetRun) enter(before, after answer.Ledger, perPacket uint64) error {
	if before.Started != after.Started {
		return errors.New("the receiver was restarted during the measurement: its books began at zero again")
	}
	d := after.Datagrams
	r.ReceivedPackets = d.Read - before.Datagrams.Read
	r.KernelDroppedPackets = d.KernelDropped - before.Datagrams.KernelDropped
	r.OversizedPackets = d.Oversized - before.Datagrams.Oversized
	r.ReceivedSamples = after.Samples.Received - before.Samples.Received
	r.LostSamples = r.SentSamples - min(r.SentSamples, r.ReceivedSamples)
	r.FoldedSamples = after.Samples.OfWhich.Folded - before.Samples.OfWhich.Folded
	r.enterNotKept(before.Samples, after.Samples)

	lost := r.KernelDroppedPackets + r.OversizedPackets
	booked := r.ReceivedPackets + lost
	books := fmt.Sprintf("of %d packets with %d samples the books have %d read with %d samples, "+
		"%d dropped by the kernel, %d oversized",
		r.SentPackets, r.SentSamples, r.ReceivedPackets, r.ReceivedSamples, r.KernelDroppedPackets, r.OversizedPackets)
	switch {
	case booked > r.SentPackets || r.ReceivedSamples > r.SentSamples:
		return fmt.Errorf("the books do not close: %s; does another program send to the receiver?", books)
	case booked < r.SentPackets:
		err := fmt.Errorf("the books do not close: %s; %d %w", books, r.SentPackets-booked, errUnexplained)
		if r.KernelDroppedPackets > 0 {
			err = fmt.Errorf("%w; with UDP_GRO on the receiver, the kernel counts several dropped packets as one", err)
		}
		return err
	case r.LostSamples < lost || r.LostSamples > lost*perPacket:
		return fmt.Errorf("the books do not close: %s; a packet has at most %d samples", books, perPacket)
	case after.Samples.Difference != 0:
		return fmt.Errorf("the books do not close: %d samples are in no state, see freshet ledger", after.Samples.Difference)
	}
	return nil
}

// enterNotKept notes the reasons why received samples were not kept, for example a limit.
func (r *packetRun) enterNotKept(before, after ledger.Samples) {
	r.NotKept = map[string]uint64{}
	was := before.Lost()
	for i, state := range after.Lost() {
		if state.Account == ledger.Discarded {
			continue // a collector without an aggregator discards all samples
		}
		for reason, n := range state.Reasons {
			if more := n - was[i].Reasons[reason]; more > 0 {
				r.NotKept[state.Account.String()+": "+reason] = more
			}
		}
	}
}
