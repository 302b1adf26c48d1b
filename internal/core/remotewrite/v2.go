package remotewrite

import "fmt"

// DecodeV2 reads a decompressed io.prometheus.write.v2.Request. After an error the request may
// not be used.
func (r *Request) DecodeV2(body []byte) error {
	defer r.Bound(nil)
	if err := r.reset(body, true); err != nil {
		return err
	}
	for i := 0; i < len(body); {
		tag, from, next := field(body, i)
		switch tag {
		case 4<<3 | wireBytes: // symbols
			if next < 0 {
				return malformed("Request", i)
			}
			if !r.takes(symbolMemory) {
				return r.full
			}
			r.symbols = append(r.symbols, part{uint32(from), uint32(next)})
			// Symbols mostly come in a row.
			for next+1 < len(body) && body[next] == 4<<3|wireBytes && body[next+1] < 0x80 {
				from = next + 2
				to := from + int(body[next+1])
				if to > len(body) || !r.takes(symbolMemory) {
					break
				}
				r.symbols = append(r.symbols, part{uint32(from), uint32(to)})
				next = to
			}
		case 5<<3 | wireBytes: // timeseries
			if next < 0 {
				return malformed("Request", i)
			}
			if len(r.Series) == r.room {
				return ErrTooManyParts
			}
			if !r.takes(seriesMemory) {
				return r.full
			}
			if !r.seriesV2(body[:next], from) {
				return fmt.Errorf("time series %d: %w", len(r.Series), r.unread("TimeSeries", i))
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
	Series  int // counted from 1
	Field   string
	Ref     uint32
	Symbols int // how many the request has
}

func (e *RefError) Error() string {
	return fmt.Sprintf("time series %d: %s refers to symbol %d, and the request has %d symbols",
		e.Series, e.Field, e.Ref, e.Symbols)
}

// checkRefs refuses a request whose highest reference is too high, and names the place in the
// error. So later code need not check references.
func (r *Request) checkRefs() error {
	if r.odd > 0 {
		return fmt.Errorf("time series %d: labels_refs has an odd number of references, so a name has no value", r.odd)
	}
	if int(r.highest) < len(r.symbols) || r.highest == 0 && len(r.refs)+len(r.exemplarRefs) == 0 {
		return nil
	}
	count := len(r.symbols)
	for i := range r.Series {
		s := &r.Series[i]
		for _, ref := range r.Refs(s) {
			if int(ref) >= count {
				return &RefError{i + 1, "labels_refs", ref, count}
			}
		}
		for _, e := range r.Exemplars(s) {
			for _, ref := range r.exemplarRefs[e.labels.from:e.labels.to] {
				if int(ref) >= count {
					return &RefError{i + 1, "labels_refs of an exemplar", ref, count}
				}
			}
		}
		// A series without metadata refers to symbol 0, which a request need not have.
		if ref := s.Metadata.Help; ref != 0 && int(ref) >= count {
			return &RefError{i + 1, "help_ref", ref, count}
		}
		if ref := s.Metadata.Unit; ref != 0 && int(ref) >= count {
			return &RefError{i + 1, "unit_ref", ref, count}
		}
	}
	panic(fmt.Sprintf("BUG: a reference to symbol %d of %d was read and is in no series", r.highest, count))
}

// seriesV2 reads the TimeSeries in b[i:]. b is the request's body, cut off where the TimeSeries ends.
func (r *Request) seriesV2(b []byte, i int) bool {
	s := r.addSeries()
	s.labels.from = uint32(len(r.refs))
	for i < len(b) {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels_refs
			if next > 0 {
				r.refs, next = r.references(r.refs, b, from, next)
			}
		case 1<<3 | wireVarint:
			if !r.takes(refMemory) {
				return false
			}
			r.refs, next = r.reference(r.refs, b, from)
		case 2<<3 | wireBytes: // samples
			if next < 0 || !r.sample(b[:next], from) {
				return false
			}
		case 3<<3 | wireBytes: // histograms
			if next < 0 || !r.histogram(b[:next], from) {
				return false
			}
		case 4<<3 | wireBytes: // exemplars
			if next < 0 || !r.exemplarV2(b[:next], from) {
				return false
			}
		case 5<<3 | wireBytes: // metadata
			if next < 0 || !s.Metadata.decode(b[:next], from) {
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
	s.labels.to = uint32(len(r.refs))
	if (s.labels.to-s.labels.from)%2 != 0 {
		r.odd = len(r.Series)
	}
	r.highest = max(r.highest, s.Metadata.Help, s.Metadata.Unit)
	r.endSeries(s)
	return true
}

// references reads packed labels_refs, with a fast path for numbers below 16,384. References are
// half the cost of reading a request.
func (r *Request) references(to []uint32, b []byte, i, end int) ([]uint32, int) {
	if !r.takes(refMemory * (end - i)) {
		return to, bad
	}
	highest := r.highest
	for i+1 < end && b[i]&b[i+1] < 0x80 { // at most one of the two has its continuation bit set
		ref, n := uint32(b[i]), 1
		if ref >= 0x80 {
			ref, n = ref&0x7f|uint32(b[i+1])<<7, 2
		}
		to = append(to, ref)
		highest = max(highest, ref)
		i += n
	}
	r.highest = highest
	for i < end {
		if to, i = r.reference(to, b, i); i < 0 {
			return to, bad
		}
	}
	return to, i
}

func (r *Request) reference(to []uint32, b []byte, i int) ([]uint32, int) {
	ref, next := number32(b, i)
	r.highest = max(r.highest, ref)
	return append(to, ref), next
}

func (r *Request) exemplarV2(b []byte, i int) bool {
	if len(r.exemplars) == r.room || !r.takes(exemplarMemory) {
		return false
	}
	e := Exemplar{labels: labels{part: part{from: uint32(len(r.exemplarRefs))}}}
	for i < len(b) {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels_refs
			if next > 0 {
				r.exemplarRefs, next = r.references(r.exemplarRefs, b, from, next)
			}
		case 1<<3 | wireVarint:
			if !r.takes(refMemory) {
				return false
			}
			r.exemplarRefs, next = r.reference(r.exemplarRefs, b, from)
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
	e.labels.to = uint32(len(r.exemplarRefs))
	if (e.labels.to-e.labels.from)%2 != 0 {
		r.odd = len(r.Series)
	}
	r.exemplars = append(r.exemplars, e)
	return true
}

// decode reads the fields in b from i on; other fields of m keep their values.
func (m *Metadata) decode(b []byte, i int) bool {
	for i < len(b) {
		next := bad
		switch b[i] {
		case 1<<3 | wireVarint:
			m.Type, next = enum[MetricType](b, i+1)
		case 3<<3 | wireVarint:
			m.Help, next = number32(b, i+1)
		case 4<<3 | wireVarint:
			m.Unit, next = number32(b, i+1)
		default:
			next = m.field(b, i)
		}
		if next < 0 {
			return false
		}
		i = next
	}
	return true
}

// field reads a field that is unknown, or whose tag is not in its shortest form.
func (m *Metadata) field(b []byte, i int) (next int) {
	switch tag, from, _ := field(b, i); tag {
	case 1<<3 | wireVarint:
		m.Type, next = enum[MetricType](b, from)
	case 3<<3 | wireVarint:
		m.Help, next = number32(b, from)
	case 4<<3 | wireVarint:
		m.Unit, next = number32(b, from)
	default:
		next = other(b, i, tag, 1<<1|1<<3|1<<4)
	}
	return next
}
