package remotewrite

import "fmt"

// DecodeV2 reads an io.prometheus.write.v2.Request, which has been decompressed. On an
// error nothing of the request is to be used.
func (r *Request) DecodeV2(body []byte) error {
	r.reset(true)
	for i := 0; i < len(body); {
		tag, from, next := field(body, i)
		switch tag {
		case 4<<3 | wireBytes: // symbols
			if next < 0 {
				return malformed("Request", i)
			}
			r.Symbols = append(r.Symbols, body[from:next:next])
		case 5<<3 | wireBytes: // timeseries
			if next < 0 || !r.seriesV2(body[from:next]) {
				return fmt.Errorf("time series %d: %w", len(r.Series), malformed("TimeSeries", i))
			}
		default:
			if next = other(body, i, tag, 1<<4|1<<5); next < 0 {
				return malformed("Request", i)
			}
		}
		i = next
	}
	return r.checkRefs()
}

// RefError says that a request refers to a symbol that it does not have.
type RefError struct {
	Series  int // from 1 on
	Field   string
	Ref     uint32
	Symbols int // how many there are
}

func (e *RefError) Error() string {
	return fmt.Sprintf("time series %d: %s refers to symbol %d, and the request has %d symbols", e.Series, e.Field, e.Ref, e.Symbols)
}

// checkRefs looks at every reference once: after this nobody has to.
func (r *Request) checkRefs() error {
	for i := range r.Series {
		s := &r.Series[i]
		if err := r.check(i, "labels_refs", s.Refs); err != nil {
			return err
		}
		for k := range s.Exemplars {
			if err := r.check(i, "labels_refs of an exemplar", s.Exemplars[k].Refs); err != nil {
				return err
			}
		}
		// A series without metadata refers to symbol 0, which a request without series with
		// labels need not have.
		if ref := s.Metadata.Help; ref != 0 && int(ref) >= len(r.Symbols) {
			return &RefError{i + 1, "help_ref", ref, len(r.Symbols)}
		}
		if ref := s.Metadata.Unit; ref != 0 && int(ref) >= len(r.Symbols) {
			return &RefError{i + 1, "unit_ref", ref, len(r.Symbols)}
		}
	}
	return nil
}

func (r *Request) check(series int, field string, refs []uint32) error {
	for _, ref := range refs {
		if int(ref) >= len(r.Symbols) {
			return &RefError{series + 1, field, ref, len(r.Symbols)}
		}
	}
	if len(refs)%2 != 0 {
		return fmt.Errorf("time series %d: %s has a name without a value, an odd number of references", series+1, field)
	}
	return nil
}

func (r *Request) seriesV2(b []byte) bool {
	s := r.addSeries()
	samples, exemplars, histograms := len(r.samples), len(r.exemplars), len(r.histograms)
	refs := len(r.refs)
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels_refs
			if next > 0 {
				r.refs, next = references(r.refs, b, from, next)
			}
		case 1<<3 | wireVarint:
			r.refs, next = one(r.refs, b, from, number32)
		case 2<<3 | wireBytes: // samples
			if next < 0 || !r.sample(b[from:next]) {
				return false
			}
		case 3<<3 | wireBytes: // histograms
			if next < 0 || !r.histogram(b[from:next]) {
				return false
			}
		case 4<<3 | wireBytes: // exemplars
			if next < 0 || !r.exemplarV2(b[from:next]) {
				return false
			}
		case 5<<3 | wireBytes: // metadata
			if next < 0 || !s.Metadata.decode(b[from:next]) {
				return false
			}
		default:
			next = other(b, i, tag, upTo(5))
		}
		if next < 0 {
			return false
		}
		i = next
	}
	s.Refs = tail(r.refs, refs)
	r.endSeries(s, samples, exemplars, histograms)
	return true
}

// references is packed for labels_refs, with straight lines for numbers below 16,384:
// they are half of what it costs to read a request.
func references(to []uint32, b []byte, i, end int) ([]uint32, int) {
	for i+1 < end {
		switch low, high := b[i], b[i+1]; {
		case low < 0x80:
			to = append(to, uint32(low))
			i++
		case high < 0x80:
			to = append(to, uint32(low&0x7f)|uint32(high)<<7)
			i += 2
		default:
			v, next := longVarint(b, i)
			if next < 0 {
				return to, bad
			}
			to = append(to, uint32(v))
			i = next
		}
	}
	return packed(to, b, i, end, number32)
}

func (r *Request) exemplarV2(b []byte) bool {
	var e Exemplar
	refs := len(r.exemplar.refs)
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels_refs
			if next > 0 {
				r.exemplar.refs, next = references(r.exemplar.refs, b, from, next)
			}
		case 1<<3 | wireVarint:
			r.exemplar.refs, next = one(r.exemplar.refs, b, from, number32)
		case 2<<3 | wire64:
			e.Value, next = double(b, from)
		case 3<<3 | wireVarint:
			e.Time, next = integer(b, from)
		default:
			next = other(b, i, tag, upTo(3))
		}
		if next < 0 {
			return false
		}
		i = next
	}
	e.Refs = tail(r.exemplar.refs, refs)
	r.exemplars = append(r.exemplars, e)
	return true
}

func (m *Metadata) decode(b []byte) bool {
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireVarint:
			m.Type, next = enum[MetricType](b, from)
		case 3<<3 | wireVarint:
			m.Help, next = number32(b, from)
		case 4<<3 | wireVarint:
			m.Unit, next = number32(b, from)
		default:
			next = other(b, i, tag, 1<<1|1<<3|1<<4)
		}
		if next < 0 {
			return false
		}
		i = next
	}
	return true
}
