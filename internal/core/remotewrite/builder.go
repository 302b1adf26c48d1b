package remotewrite

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Builder makes a request from samples that did not come by remote write. The request has version
// 1, so readers need not know the source, and a series has the same key as if Prometheus had sent
// it.
//
// Builder copies everything that is added: labels and texts into Body, which belongs to the caller,
// and the rest into the request's own memory. As after DecodeV1, the request points into Body and
// must not be used longer than Body. The request is complete after Finish.
type Builder struct {
	Body []byte

	request  *Request
	exemplar bool // Label adds to the last exemplar, not to the last series
	families []family
}

// family is a Family whose texts are positions in Body, since Body may still move in memory.
type family struct {
	name, help, unit part
	kind             MetricType
}

// ErrTooLargeToBuild means that the parts do not fit into one request: its offsets have 32 bits.
var ErrTooLargeToBuild = fmt.Errorf("the converted request would take more than %d bytes, since each series repeats "+
	"its labels: send fewer data points in a request",
	math.MaxInt32)

// maxLabel is how many bytes a label takes at most besides its name and its value: the tags and
// lengths of name, value and label.
const maxLabel = 3 * (1 + binary.MaxVarintLen32)

// Begin begins a request in r's memory, and overwrites that memory. Labels are appended to `body`.
func (b *Builder) Begin(r *Request, body []byte) {
	_ = r.reset(nil, false) // cannot fail, since there is no body that could be too large
	*b = Builder{Body: body, request: r, families: b.families[:0]}
}

// Series begins a series. The parts that are added next belong to the series. Its labels come
// first, sorted by name.
func (b *Builder) Series() {
	b.endSeries()
	s := b.request.addSeries()
	at := uint32(len(b.Body))
	s.labels.part = part{at, at}
	b.exemplar = false
}

// Cut begins another part of the request with the next series: see Request.Cuts.
func (b *Builder) Cut() { b.request.Cuts = append(b.request.Cuts, len(b.request.Series)) }

// Type sets the metric type of the last series, where version 2 has it.
func (b *Builder) Type(t MetricType) {
	b.request.Series[len(b.request.Series)-1].Metadata.Type = t
}

func (b *Builder) endSeries() {
	if n := len(b.request.Series); n > 0 {
		b.request.endSeries(&b.request.Series[n-1])
	}
}

// Label adds a label to the last series or exemplar, whichever began later. It reports whether
// there was room.
func (b *Builder) Label(name, value string) bool {
	if uint64(len(b.Body))+uint64(len(name))+uint64(len(value))+maxLabel > math.MaxInt32 {
		return false
	}
	l := &b.request.Series[len(b.request.Series)-1].labels
	if b.exemplar {
		l = &b.request.exemplars[len(b.request.exemplars)-1].labels
	}
	if int(l.to) != len(b.Body) {
		panic(fmt.Sprintf("BUG: label %.80q is added at byte %d to labels that end at byte %d", name, len(b.Body), l.to))
	}
	b.Body = append(b.Body, 1<<3|wireBytes) // the field `labels` of TimeSeries and Exemplar
	b.Body = binary.AppendUvarint(b.Body, uint64(sizeOfText(name)+sizeOfText(value)))
	b.Body = appendText(b.Body, 1, name)
	b.Body = appendText(b.Body, 2, value)
	l.to = uint32(len(b.Body))
	return true
}

// sizeOfText returns how many bytes appendText appends.
func sizeOfText(s string) int {
	n := 2
	for l := len(s); l >= 0x80; l >>= 7 {
		n++
	}
	return n + len(s)
}

func appendText(to []byte, number byte, s string) []byte {
	to = append(to, number<<3|wireBytes)
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// Sample adds a sample to the last series.
func (b *Builder) Sample(s Sample) { b.request.samples = append(b.request.samples, s) }

// Histogram adds a histogram to the last series. It copies the lists.
func (b *Builder) Histogram(h Histogram) {
	l := &b.request.buckets
	h.NegativeSpans = copied(&l.negativeSpans, h.NegativeSpans)
	h.PositiveSpans = copied(&l.positiveSpans, h.PositiveSpans)
	h.NegativeDeltas = copied(&l.negativeDeltas, h.NegativeDeltas)
	h.PositiveDeltas = copied(&l.positiveDeltas, h.PositiveDeltas)
	h.NegativeCounts = copied(&l.negativeCounts, h.NegativeCounts)
	h.PositiveCounts = copied(&l.positiveCounts, h.PositiveCounts)
	h.CustomValues = copied(&l.customValues, h.CustomValues)
	b.request.histograms = append(b.request.histograms, h)
}

// copied appends `list` to `all` and returns the copy, or nil if `list` is empty.
func copied[T any](all *[]T, list []T) []T {
	if len(list) == 0 {
		return nil
	}
	from := len(*all)
	*all = append(*all, list...)
	return tail(*all, from)
}

// Exemplar begins an exemplar of the last series. Add its labels next.
func (b *Builder) Exemplar(value float64, t int64) {
	at := uint32(len(b.Body))
	b.request.exemplars = append(b.request.exemplars, Exemplar{labels: labels{part: part{at, at}}, Value: value, Time: t})
	b.exemplar = true
}

// Family adds the metadata of a metric. Do not call it between a series or an exemplar and its
// labels. It reports whether there was room.
func (b *Builder) Family(name, help, unit string, kind MetricType) bool {
	if uint64(len(b.Body))+uint64(len(name))+uint64(len(help))+uint64(len(unit)) > math.MaxInt32 {
		return false
	}
	f := family{kind: kind}
	for _, text := range []struct {
		of   *part
		text string
	}{{&f.name, name}, {&f.help, help}, {&f.unit, unit}} {
		text.of.from = uint32(len(b.Body))
		b.Body = append(b.Body, text.text...)
		text.of.to = uint32(len(b.Body))
	}
	b.families = append(b.families, f)
	return true
}

// Bytes returns roughly how many bytes of memory the request takes so far, including Body.
func (b *Builder) Bytes() int {
	r := b.request
	const series, sample, exemplar, histogram, number = 56, 24, 32, 320, 8
	return len(b.Body) + len(r.Series)*series + len(r.samples)*sample + len(r.exemplars)*exemplar +
		len(r.histograms)*histogram +
		number*(len(r.buckets.negativeSpans)+len(r.buckets.positiveSpans)+len(r.buckets.negativeDeltas)+
			len(r.buckets.positiveDeltas)+
			len(r.buckets.negativeCounts)+len(r.buckets.positiveCounts)+len(r.buckets.customValues))
}

// Finish completes the request.
func (b *Builder) Finish() {
	b.endSeries()
	r := b.request
	r.body = b.Body
	for _, f := range b.families {
		r.Families = append(r.Families,
			Family{Name: b.text(f.name), Help: b.text(f.help), Unit: b.text(f.unit), Type: f.kind})
	}
	b.request = nil
}

func (b *Builder) text(p part) []byte { return b.Body[p.from:p.to:p.to] }
