package tsdb

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freshet-io/freshet/internal/lib/retry"
)

// savePeriod is how often SaveHeads looks at the logs of open stores: at a note, and the sizes of the files.
const savePeriod = time.Minute

// SaveHeads saves the heads of open stores whose logs have grown enough, one store after the other, until ctx is done.
// So the logs, and not the time, decide how much is written, and how much a start reads after a kill.
func (s *Stores) SaveHeads(ctx context.Context) error {
	for {
		// The jitter keeps several processes on one machine apart.
		if err := retry.Wait(ctx, savePeriod*9/10+rand.N(savePeriod/5)); err != nil {
			return nil
		}
		s.saveHeads(ctx, runningShare)
	}
}

// SaveHeadsNow saves the heads of open stores before another process opens them.
func (s *Stores) SaveHeadsNow(ctx context.Context) { s.saveHeads(ctx, stoppingShare) }

func (s *Stores) saveHeads(ctx context.Context, share int64) {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	for _, st := range all {
		if ctx.Err() != nil {
			return
		}
		st.saveOpenHead(share)
	}
}

// saveOpenHead saves the head of the store if it is open, and if that pays: see the method saves.
func (s *store) saveOpenHead(share int64) {
	s.mu.Lock()
	db := s.db
	if db == nil || s.closing || s.renewing {
		s.mu.Unlock()
		return
	}
	s.users++
	s.mu.Unlock()
	defer s.leave()
	s.saving.Lock()
	defer s.saving.Unlock()
	begun := time.Now()
	saves, err := s.saves(db, share)
	if err == nil && saves {
		err = s.saveHead(db)
	}
	s.tellSaved(saves, err, begun)
}
