package tsdb

import (
	"context"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/write"
)

// State returns the state that WriteRequests left in a tenant's raw store, or the zero state if
// there is no store. If the head has no sample, the next sample decides anew which samples are too
// old.
func (s *Stores) State(ctx context.Context, tenant string) (write.State, error) {
	st, err := s.forRead(tenant, Raw)
	if st == nil || err != nil {
		return write.State{}, err
	}
	db, err := st.read(ctx)
	if err != nil {
		return write.State{}, fmt.Errorf("read the state of tenant %.80q from store %s: %w", tenant, Raw, err)
	}
	if db == nil {
		return write.State{}, nil
	}
	defer st.release()
	newest := max(db.Head().MaxTime(), db.Head().MaxOOOTime())
	if newest == math.MinInt64 {
		return write.State{}, nil
	}
	return write.State{Newest: newest}, nil
}
