package tile

import "github.com/freshet-io/freshet/internal/core/batch"

// upDown adds up increments of either sign.
type upDown struct{}

func (upDown) add(e *entry, t *openTile, inc *batch.Increment) bool {
	if !e.bears(inc.Value, amountValue) {
		return false
	}
	t.value += inc.Value
	return true
}

func (upDown) absorb(e *entry, t *openTile) { e.total.value += t.value }

func (upDown) appendSamples(e *entry, out []Sample, _ Width, at int64, f form) []Sample {
	return appendValue(out, e.series, at, f, e.total.value)
}

func (upDown) append(e *entry, t *openTile, dst []byte) []byte {
	return appendSources(appendAmount(dst, 0, e.amount(t).value, 0), nil)
}

func (upDown) parse(e *entry, t *openTile, d *decoder) {
	_, e.amount(t).value, _ = d.amount(0)
	d.sources()
}

func (upDown) rises() bool { return false }
