package distributor

import (
	"context"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Tiles stores tiles: see tsdb.Stores.
type Tiles interface {
	WriteTiles(ctx context.Context, tenant string, width tile.Width, samples []tile.Sample) (tile.Written, error)
	// Sync makes everything that is stored survive a power loss.
	Sync(ctx context.Context) error
	// NewTotal is called with a series of deltas that is new, or that a limit refused.
	NewTotal(tenant string, ls labels.Labels, from sender.Sender, refused bool)
}

// WriteTiles writes tiles of one width to our own store and to the backends that take tiles of this
// width. All samples from DogStatsD and OTLP deltas come this way. After an error, the caller should
// write the same samples again; samples that are already stored are then repeats.
func (d *Distributor) WriteTiles(
	ctx context.Context, of string, width tile.Width, samples []tile.Sample,
) (tile.Written, error) {
	written, err := d.StoreTiles(ctx, of, width, samples)
	if err == nil {
		d.ForwardTiles(entry.Span{}, of, width, samples)
	}
	return written, err
}

// StoreTiles is WriteTiles without backends.
func (d *Distributor) StoreTiles(
	ctx context.Context, of string, width tile.Width, samples []tile.Sample,
) (tile.Written, error) {
	trip := stage.FromContext(ctx)
	trip.Pass(stage.Distribute, stage.Append, d.Now())
	written, err := d.Tiles.WriteTiles(ctx, of, width, samples)
	if err == nil {
		trip.Leave(stage.Append, d.Now())
	}
	return written, err
}

// ForwardTiles hands tiles of one width to the backends that take tiles of this width. The span is where they come
// from in the log of a group.
//
// A backend whose queue cannot be written delays neither our own store nor the other backends. The
// backend misses these tiles, and counts them as unsent. Writing the tiles to its queue again would
// delay the tenant's later tiles until the queue works again. Keeping the tiles in memory would lose
// them at the next restart anyway.
func (d *Distributor) ForwardTiles(from entry.Span, of string, width tile.Width, samples []tile.Sample) {
	if len(d.Backends) == 0 {
		return
	}
	if of == tenant.Own {
		samples = withoutProbes(samples)
	}
	takes := func(b Backend) bool { return b.TakesTiles(width) }
	for len(samples) > 0 {
		n := min(len(samples), forwardedSamples)
		if err := d.forward(from, of, takes, func() (forwarded, error) { return encodeTiles(samples[:n]) }); err != nil {
			d.Logger.Error("tiles are stored here, but a backend does not get them",
				"tenant", of, "width", width, "samples", n, "error", err)
		}
		samples = samples[n:]
	}
}

// Sync makes every sample in our own stores survive a power loss.
func (d *Distributor) Sync(ctx context.Context) error { return d.Tiles.Sync(ctx) }

// withoutProbes leaves out Freshet's own probes, because they measure the time until a sample is in
// our own store.
func withoutProbes(samples []tile.Sample) (others []tile.Sample) {
	for i := range samples {
		if samples[i].Series.Labels.Get(model.MetricNameLabel) != probe.Metric {
			others = append(others, samples[i])
		}
	}
	return others
}
