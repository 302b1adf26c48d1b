package remotewrite

import "fmt"

// DecodeV1 reads a decompressed prometheus.WriteRequest. After an error the request may not be
// used.
//
// It does not parse labels: the caller finds a known series by its key. For a new series it calls
// Labels, which reports malformed labels.
func (r *Request) DecodeV1(body []byte) error {
	defer r.Bound(nil)
	if err := r.reset(body, false); err != nil {
		return err
	}
	for i := 0; i < len(body); {
		tag, from, next := field(body, i)
		switch tag {
		case 1<<3 | wireBytes: // timeseries
			if next < 0 {
				return malformed("WriteRequest", i)
			}
			if len(r.Series) == r.room {
				return ErrTooManyParts
			}
			if !r.takes(seriesMemory) {
				return r.full
			}
			if !r.seriesV1(body[:next], from) {
				return fmt.Errorf("time series %d: %w", len(r.Series), r.unread("TimeSeries", i))
			}
		case 3<<3 | wireBytes: // metadata
			var f Family
			if next < 0 || !f.decode(body[from:next]) {
				return malformed("MetricMetadata", i)
			}
			if len(r.Families) == r.room {
				return ErrTooManyParts
			}
			if !r.takes(familyMemory) {
				return r.full
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

// unread(message, at) returns the reason why a message could not be read: it is malformed, or Bound's
// function refused the memory.
func (r *Request) unread(message string, at int) error {
	if r.full != nil {
		return r.full
	}
	if max(len(r.samples), len(r.exemplars)) == r.room || len(r.histograms) == r.histogramRoom() {
		return ErrTooManyParts
	}
	return malformed(message, at)
}

func malformed(message string, at int) error {
	return fmt.Errorf("byte %d of the decompressed body does not begin a well-formed field of the protobuf message %s",
		at, message)
}

// seriesV1 reads the TimeSeries in b[i:]. b is the request's body, cut off where the TimeSeries ends.
func (r *Request) seriesV1(b []byte, i int) bool {
	s := r.addSeries()
	for i < len(b) {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels
			if next > 0 {
				r.keys = s.labels.add(r.keys, b, i, next)
			}
		case 2<<3 | wireBytes: // samples
			if next < 0 || !r.sample(b[:next], from) {
				return false
			}
		case 3<<3 | wireBytes: // exemplars
			if next < 0 || !r.exemplarV1(b[:next], from) {
				return false
			}
		case 4<<3 | wireBytes: // histograms
			if next < 0 || !r.histogram(b[:next], from) {
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
	r.endSeries(s)
	return true
}

func (r *Request) exemplarV1(b []byte, i int) bool {
	if len(r.exemplars) == r.room || !r.takes(exemplarMemory) {
		return false
	}
	var e Exemplar
	for i < len(b) {
		tag, from, next := field(b, i)
		switch tag {
		case 1<<3 | wireBytes: // labels
			if next > 0 {
				r.exemplarKeys = e.labels.add(r.exemplarKeys, b, i, next)
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
	r.exemplars = append(r.exemplars, e)
	return true
}

// add adds the field b[from:to]. Every encoder writes the label fields next to each other. Such fields
// stay where they are in the body. Otherwise add appends all of them to `copies`.
func (l *labels) add(copies, b []byte, from, to int) []byte {
	if int(l.to) == from && !l.copied {
		l.to = uint32(to)
		return copies
	}
	return l.addApart(copies, b, from, to)
}

func (l *labels) addApart(copies, b []byte, from, to int) []byte {
	switch {
	case l.copied:
	case l.to == 0: // the first field may be anywhere
		l.from, l.to = uint32(from), uint32(to)
		return copies
	default:
		first := l.part
		l.from, l.copied = uint32(len(copies)), true
		copies = append(copies, b[first.from:first.to]...)
	}
	copies = append(copies, b[from:to]...)
	l.to = uint32(len(copies))
	return copies
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
