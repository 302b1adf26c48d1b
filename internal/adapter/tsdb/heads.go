package tsdb

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freshet-io/freshet/internal/lib/retry"
)

// savePeriod is how often the heads of open stores are saved. A start reads what came into the logs since.
const savePeriod = 5 * time.Minute

// SaveHeads saves the heads of open stores every few minutes, one store after the other, until ctx is done.
func (s *Stores) SaveHeads(ctx context.Context) error {
	for {
		// The jitter keeps several processes on one machine apart.
		if err := retry.Wait(ctx, savePeriod*9/10+rand.N(savePeriod/5)); err != nil {
			return nil
		}
		s.SaveHeadsNow(ctx)
	}
}

// SaveHeadsNow saves the heads of open stores whose logs have grown enough.
func (s *Stores) SaveHeadsNow(ctx context.Context) {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	for _, st := range all {
		if ctx.Err() != nil {
			return
		}
		st.saveOpenHead()
	}
}

// saveOpenHead saves the head of the store if it is open, and if that pays.
func (s *store) saveOpenHead() {
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
	saves, err := s.saves(db)
	if err == nil && saves {
		err = s.saveHead(db)
	}
	s.tellSaved(saves, err, begun)
}
