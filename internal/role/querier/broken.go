package querier

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// opened is the result of openStores: one querier for each store that could be opened.
type opened[Q storage.LabelQuerier] struct {
	queriers []Q
	tiles    int                     // how many queriers read tiles; they are last in the list
	warnings annotations.Annotations // warnings about stores that could not be opened
}

// openStores opens the stores of a selection. A broken store only adds a warning, and the other stores
// answer. A damaged store ends the query, since another node has all its samples. If a store of tiles is
// broken, tiles of the other width answer. If there are none, only open tiles answer. If no store is left,
// openStores returns the error, because an empty answer would end alerts.
func openStores[Q storage.LabelQuerier](s *source, sel *selection,
	open func(tenant, store string, mint, maxt int64) (Q, error)) (o opened[Q], err error) {
	for _, why := range []error{sel.stale, sel.doubt} {
		if why != nil {
			o.warnings.Add(why)
		}
	}
	unread := sel.short
	if unread != nil {
		o.warnings.Add(unread)
	}
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
		o.warnings.Add(fmt.Errorf("store %s of tenant %s cannot be opened, so %s: %w",
			store, sel.tenant, instead, broken.Cause))
	}
	var broken *tsdb.BrokenError
	for _, store := range []struct{ name, missing string }{
		{raw, "samples from remote write and OTLP are missing"}, {rules, "results of rules are missing"},
		{history, "imported samples are missing"},
	} {
		switch err := add(store.name); {
		case errors.As(err, &broken) && !broken.Damaged:
			warn(store.name, store.missing, broken)
		case err != nil:
			return o, err
		}
	}
	beforeTiles := len(o.queriers)
	err = add(sel.width.String())
	if errors.As(err, &broken) && !broken.Damaged {
		was := broken
		other := otherWidth(sel.width)
		live, liveErr := sel.read(other)
		if liveErr != nil {
			return o, liveErr
		}
		switch err = add(other.String()); {
		case err == nil && (len(live) > 0 || !isNone(o.queriers[len(o.queriers)-1])):
			warn(sel.width.String(), fmt.Sprintf("tiles of %v answer instead", other), was)
			sel.width, sel.live = other, live
			exist = true
		case err == nil, errors.As(err, &broken):
			warn(sel.width.String(), "only open tiles answer", was)
			err = nil
		}
	}
	o.tiles = len(o.queriers) - beforeTiles
	if err == nil && unread != nil && !exist {
		return opened[Q]{}, fmt.Errorf("no store is left to answer the query: read the stores of tenant %s: "+
			"%w", sel.tenant, unread)
	}
	return o, err
}

// otherWidth returns the width whose tiles answer if the store of width w is broken. There are two
// widths.
func otherWidth(w tile.Width) tile.Width { return tile.Width(tile.NumWidths) - 1 - w }

// isNone reports whether a querier belongs to a store that does not exist.
func isNone(q storage.LabelQuerier) bool {
	return q == storage.LabelQuerier(storage.NoopQuerier()) || q == storage.LabelQuerier(storage.NoopChunkedQuerier())
}

// warned is a series set with additional warnings.
type warned struct {
	storage.SeriesSet
	own annotations.Annotations
}

func (w warned) Warnings() annotations.Annotations {
	var all annotations.Annotations
	all.Merge(w.own)
	return all.Merge(w.SeriesSet.Warnings())
}
