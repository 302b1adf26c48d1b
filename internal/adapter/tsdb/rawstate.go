package tsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/write"
)

// State returns the state that WriteRequests left in a tenant's raw store, as far as the store's head
// shows it, or an empty state if there is no store. If the head has no sample, the next sample decides
// anew which samples are too old.
//
// All series in the head count as written to in the epoch of the next request. So a series that ended in
// the last 3 h before the restart counts longer than without the restart, and leaves room for fewer new
// ones. If these series counted as written to in the previous epoch instead, a restart just before the
// end of an epoch would take the places of series that still get samples. Series that the head no longer
// has do not count; their last samples are more than an hour old.
func (s *Stores) State(ctx context.Context, tenant string) (*write.State, error) {
	return s.stateOf(ctx, tenant, Raw)
}

// ResultsState does what State does, for the store of the results of rules.
func (s *Stores) ResultsState(ctx context.Context, tenant string) (*write.State, error) {
	return s.stateOf(ctx, tenant, Rules)
}

func (s *Stores) stateOf(ctx context.Context, tenant, kind string) (*write.State, error) {
	state := new(write.State)
	st, err := s.forRead(tenant, kind)
	if st == nil || err != nil {
		return state, err
	}
	db, err := st.read(ctx)
	if err == nil && db != nil {
		defer st.release()
		err = db.restore(ctx, state)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of tenant %.80q from store %s: %w", tenant, kind, err)
	}
	return state, nil
}

// restore fills an empty state with what the head shows.
func (d *database) restore(ctx context.Context, state *write.State) error {
	state.Newest = max(0, d.Head().MaxTime(), d.Head().MaxOOOTime())
	reader, err := d.Head().Index()
	if err != nil {
		return err
	}
	defer reader.Close()
	name, value := index.AllPostingsKey()
	series, err := reader.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	var builder labels.ScratchBuilder
	for series.Next() {
		switch err := reader.Series(series.At(), &builder, nil); {
		case errors.Is(err, storage.ErrNotFound): // the head has dropped it meanwhile
		case err != nil:
			return err
		default:
			state.Recent.Note(recentseries.Of(builder.Labels()))
		}
	}
	state.Recent.Keep()
	return series.Err()
}
