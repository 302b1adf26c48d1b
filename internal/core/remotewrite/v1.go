package remotewrite

import "fmt"

// DecodeV1 reads a prometheus.WriteRequest, which has been decompressed. On an error
// nothing of the request is to be used.
//
// Labels are not looked into: a series that came before is found by its key, and Labels
// says whether one that did not is malformed.
func (r *Request) DecodeV1(body []byte) error {
	r.reset(false)
	for i := 0; i < len(body); {
		tag, from, next := field(body, i)
		switch tag {
		case 1<<3 | wireBytes: // timeseries
			if next < 0 || !r.seriesV1(body[from:next]) {
				return fmt.Errorf("time series %d: %w", len(r.Series), malformed("TimeSeries", i))
			}
		case 3<<3 | wireBytes: // metadata
			var f Family
			if next < 0 || !f.decode(body[from:next]) {
				return malformed("MetricMetadata", i)
			}
			r.Families = append(r.Families, f)
		default:
			if next = other(body, i, tag, 1<<1|1<<3); next < 0 {
				return malformed("WriteRequest", i)
			}
		}
		i = next
	}
	return nil
}

func malformed(message string, at int) error {
	return fmt.Errorf("byte %d of the decompressed body does not begin a well-formed field of the protobuf message %s", at, message)
}

func (r *Request) seriesV1(b []byte) bool {
	s := r.addSeries()
	samples, exemplars, histograms := len(r.samples), len(r.exemplars), len(r.histograms)
	labels := fields{copies: &r.keys}
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels
			if next > 0 {
				labels.add(b, i, next)
			}
		case 2<<3 | wireBytes: // samples
			if next < 0 || !r.sample(b[from:next]) {
				return false
			}
		case 3<<3 | wireBytes: // exemplars
			if next < 0 || !r.exemplarV1(b[from:next]) {
				return false
			}
		case 4<<3 | wireBytes: // histograms
			if next < 0 || !r.histogram(b[from:next]) {
				return false
			}
		default:
			next = other(b, i, tag, upTo(4))
		}
		if next < 0 {
			return false
		}
		i = next
	}
	s.Key = labels.end(b)
	r.endSeries(s, samples, exemplars, histograms)
	return true
}

func (r *Request) exemplarV1(b []byte) bool {
	var e Exemplar
	labels := fields{copies: &r.exemplar.keys}
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels
			if next > 0 {
				labels.add(b, i, next)
			}
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
	e.Key = labels.end(b)
	r.exemplars = append(r.exemplars, e)
	return true
}

// fields are the fields of one number in a message: their bytes there if they follow one
// another, as everybody writes them, and else a copy.
type fields struct {
	copies   *[]byte
	from, to int // in the message; from is in copies once there is a gap
	copied   bool
}

func (f *fields) add(b []byte, from, to int) {
	if f.to == from && !f.copied {
		f.to = to
		return
	}
	f.addApart(b, from, to)
}

func (f *fields) addApart(b []byte, from, to int) {
	switch {
	case f.copied:
		*f.copies = append(*f.copies, b[from:to]...)
	case f.to == 0: // what is first may be anywhere
		f.from, f.to = from, to
	default:
		start := len(*f.copies)
		*f.copies = append(append(*f.copies, b[f.from:f.to]...), b[from:to]...)
		f.from, f.copied = start, true
	}
}

// end returns the bytes of all that were added.
func (f *fields) end(b []byte) []byte {
	if f.copied {
		return tail(*f.copies, f.from)
	}
	return b[f.from:f.to:f.to]
}

func (l *Label) decode(b []byte) bool {
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch {
		case next < 0 && tag&7 == wireBytes:
			return false
		case tag == 1<<3|wireBytes:
			l.Name = b[from:next:next]
		case tag == 2<<3|wireBytes:
			l.Value = b[from:next:next]
		default:
			if next = other(b, i, tag, upTo(2)); next < 0 {
				return false
			}
		}
		i = next
	}
	return true
}

func (f *Family) decode(b []byte) bool {
	for i := 0; i < len(b); {
		tag, from, next := field(b, i)
		switch {
		case next < 0 && tag&7 == wireBytes:
			return false
		case tag == 1<<3|wireVarint:
			f.Type, next = enum[MetricType](b, from)
		case tag == 2<<3|wireBytes:
			f.Name = b[from:next:next]
		case tag == 4<<3|wireBytes:
			f.Help = b[from:next:next]
		case tag == 5<<3|wireBytes:
			f.Unit = b[from:next:next]
		default:
			next = other(b, i, tag, upTo(5)&^(1<<3))
		}
		if next < 0 {
			return false
		}
		i = next
	}
	return true
}
