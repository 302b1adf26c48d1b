package tsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// scrub reads files that nobody may read for long, so that damage is found while other copies are whole.
type scrub struct {
	bytes prometheus.Counter

	mu       sync.Mutex
	progress ScrubProgress
	suspects map[string]bool // tenants whose stores are being read because a query found damage
}

// newScrub returns the state of the scrub, with its metrics.
func newScrub(reg prometheus.Registerer) *scrub {
	f := promauto.With(reg)
	c := &scrub{suspects: map[string]bool{}}
	c.bytes = f.NewCounter(prometheus.CounterOpts{Name: "freshet_scrub_bytes_total",
		Help: "Bytes of chunks and logs that the scrub has read in search of damage."})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_scrub_remaining_bytes",
		Help: "Bytes that the present pass of the scrub has still to read, about. Not falling for a day: a disk hangs."},
		func() float64 { p := c.Scrubbed(); return float64(max(0, p.OfBytes-p.Bytes)) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_scrub_last_pass_timestamp_seconds",
		Help: "When a pass of the scrub ended last, in Unix seconds; 0 if none has since the start."},
		func() float64 {
			if last := c.Scrubbed().Last; !last.IsZero() {
				return float64(last.UnixMilli()) / 1000
			}
			return 0
		})
	return c
}

// ScrubProgress is how far the scrub has got.
type ScrubProgress struct {
	Begun   time.Time // when the present pass began
	Bytes   int64     // that the present pass has read
	OfBytes int64
	Last    time.Time // when the last pass ended; zero if none did
}

// Scrubbed returns how far the scrub has got.
func (c *scrub) Scrubbed() ScrubProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

const (
	// slowestScrub is how many bytes a second the scrub reads at least. A small store is then read in minutes.
	slowestScrub = 1 << 20

	// scrubPiece is after how many bytes the scrub rests.
	scrubPiece = 1 << 20
)

// Others are files beside the stores that the scrub reads, too.
type Others struct {
	Bytes func() int64
	// Check reads the files, and notes their damage. It calls `pace` with the number of bytes that it has read. An
	// error of `pace` ends the check.
	Check func(pace func(bytes int64) error)
}

// Scrub reads all blocks, and the segments of logs that are complete, once in each period, until ctx is done. A store
// with a damaged file is damaged: see Damaged.
func (s *Stores) Scrub(ctx context.Context, period time.Duration, others ...Others) error {
	for {
		begun := time.Now()
		s.scrubAll(ctx, period, others...)
		if err := retry.Wait(ctx, max(time.Minute, period-time.Since(begun))); err != nil {
			return nil
		}
	}
}

// scrubAll makes one pass.
func (s *Stores) scrubAll(ctx context.Context, period time.Duration, others ...Others) {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	sum := int64(0)
	for _, st := range all {
		for _, f := range st.closedFiles() {
			sum += f.bytes
		}
	}
	for _, o := range others {
		sum += o.Bytes()
	}
	s.scrub.note(func(p *ScrubProgress) { p.Begun, p.Bytes, p.OfBytes = time.Now(), 0, sum })
	rate := max(slowestScrub, float64(sum)/period.Seconds())
	read := int64(0)
	pace := func(n int64) error {
		s.scrub.bytes.Add(float64(n))
		s.scrub.note(func(p *ScrubProgress) { p.Bytes += n })
		if read += n; read < scrubPiece {
			return ended(ctx.Err())
		}
		pause := time.Duration(float64(read) / rate * float64(time.Second))
		read = 0
		return ended(retry.Wait(ctx, pause))
	}
	for _, st := range all {
		if st.check(pace); ctx.Err() != nil {
			return
		}
	}
	for _, o := range others {
		if o.Check(pace); ctx.Err() != nil {
			return
		}
	}
	s.scrub.note(func(p *ScrubProgress) { p.Last = time.Now() })
}

func (c *scrub) note(change func(p *ScrubProgress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.progress)
}

// hurt returns the known damage of a store that is open all the same, since no other node has its data.
func (s *Stores) hurt(tenant, store string) *BrokenError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.tenants[tenant][store]; st != nil {
		return st.hurt.Load()
	}
	return nil
}

// Suspect is called with the error of a query. If the error says that a file is damaged, all files of the tenant's
// stores are read at once. If other members have the data, the returned error has partial.ErrElsewhere.
func (s *Stores) Suspect(tenant string, err error) error {
	if err == nil || errors.Is(err, partial.ErrElsewhere) || !isDamage(err) {
		return err
	}
	s.scrub.mu.Lock()
	defer s.scrub.mu.Unlock()
	if !s.scrub.suspects[tenant] {
		s.scrub.suspects[tenant] = true
		go s.checkTenant(tenant)
	}
	if !s.others.Load() {
		return err
	}
	return fmt.Errorf("%w: data of this node are damaged: %w", partial.ErrElsewhere, err)
}

func (s *Stores) checkTenant(tenant string) {
	s.mu.Lock()
	stores := s.tenants[tenant]
	s.mu.Unlock()
	for _, kind := range kinds {
		if st := stores[kind]; st != nil {
			st.check(func(int64) error { return nil })
		}
	}
	s.scrub.mu.Lock()
	defer s.scrub.mu.Unlock()
	delete(s.scrub.suspects, tenant)
}

// isDamage reports whether the error of a query says that a file is damaged. tsdb has no type for some of these errors.
func isDamage(err error) bool {
	if _, unreadable := errors.AsType[*pagefault.Error](err); unreadable {
		return true
	}
	if _, damaged := errors.AsType[*chunks.CorruptionErr](err); damaged || errors.Is(err, encoding.ErrInvalidChecksum) ||
		errors.Is(err, encoding.ErrInvalidSize) {
		return true
	}
	return slices.ContainsFunc([]string{"checksum", "invalid chunk encoding", "out of range",
		"enough bytes to read the chunk", "reading chunk length failed"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}
