package querier

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// opened is what openStores returns: one querier for each store that could be opened.
type opened[Q storage.LabelQuerier] struct {
	queriers []Q
	tiles    int                     // how many of them read tiles: the last ones
	warnings annotations.Annotations // of stores that could not be
}

// openStores opens the stores of a selection. A store that is broken costs a warning, and
// the others answer; in place of tiles of one width it takes those of another, with what
// is open of them. If nothing is left to answer, the store's error is returned: an empty
// answer would end alerts.
func openStores[Q storage.LabelQuerier](s *source, sel *selection, open func(tenant, store string, mint, maxt int64) (Q, error)) (o opened[Q], err error) {
	var unread error
	exist := len(sel.live) > 0
	add := func(store string) error {
		q, err := open(sel.tenant, store, s.mint, s.maxt)
		if err != nil {
			return err
		}
		s.opened = append(s.opened, q)
		o.queriers = append(o.queriers, q)
		exist = exist || !isNone(q)
		return nil
	}
	warn := func(store, instead string, broken *tsdb.BrokenError) {
		unread = broken
		o.warnings.Add(fmt.Errorf("store %s of tenant %s cannot be opened, %s: %w", store, sel.tenant, instead, broken.Cause))
	}
	var broken *tsdb.BrokenError
	switch err := add(raw); {
	case errors.As(err, &broken):
		warn(raw, "what came by remote write and OTLP is missing", broken)
	case err != nil:
		return o, err
	}
	beforeTiles := len(o.queriers)
	err = add(sel.width.String())
	if errors.As(err, &broken) {
		was := broken
		other := otherWidth(sel.width)
		live, liveErr := sel.read(other)
		if liveErr != nil {
			return o, liveErr
		}
		switch err = add(other.String()); {
		case err == nil && (len(live) > 0 || !isNone(o.queriers[len(o.queriers)-1])):
			warn(sel.width.String(), fmt.Sprintf("tiles of %v answer in their place", other), was)
			sel.width, sel.live = other, live
			exist = true
		case err == nil, errors.As(err, &broken):
			warn(sel.width.String(), "only open tiles answer", was)
			err = nil
		}
	}
	o.tiles = len(o.queriers) - beforeTiles
	if err == nil && unread != nil && !exist {
		return opened[Q]{}, fmt.Errorf("nothing is left to answer: read the stores of tenant %s: %w", sel.tenant, unread)
	}
	return o, err
}

// otherWidth is the one that answers in place of a width. There are two.
func otherWidth(w tile.Width) tile.Width { return tile.Width(tile.NumWidths) - 1 - w }

// isNone reports whether a querier is that of a store which does not exist.
func isNone(q storage.LabelQuerier) bool {
	return q == storage.LabelQuerier(storage.NoopQuerier()) || q == storage.LabelQuerier(storage.NoopChunkedQuerier())
}

// warned is a series set with warnings of its own.
type warned struct {
	storage.SeriesSet
	own annotations.Annotations
}

func (w warned) Warnings() annotations.Annotations {
	var all annotations.Annotations
	all.Merge(w.own)
	return all.Merge(w.SeriesSet.Warnings())
}
