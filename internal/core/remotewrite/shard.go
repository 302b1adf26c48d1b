package remotewrite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// noKind is what the key of a series of samples has where that of a tile's has its kind:
// version 1 does not say what a series is, and its shard must not depend on the version.
const noKind = 0

// AppendSeriesKey appends to to what series.Shard makes the shard of a series of: the key
// that series.AppendKey would write for the labels that are stored before any relabelling,
// with noKind. It is the same whatever form the series came in, and in whatever order its
// labels are. Layout: docs/format/batch.md.
//
// The label without is left out, by which an HA pair's copies differ ("" for none), and so
// is one that has no value. A series with a malformed label is refused wherever it comes;
// its key ends before that label.
func (r *Request) AppendSeriesKey(to []byte, s *Series, without string) ([]byte, error) {
	begin := len(to)
	to = append(to, noKind)
	var last []byte // name
	if r.v2 {
		refs := r.Refs(s)
		for i := 0; i < len(refs); i += 2 {
			name := r.Symbol(refs[i])
			if isBefore(name, last) {
				return r.appendSortedKey(to[:begin], s, without)
			}
			to, last = appendLabel(to, name, r.Symbol(refs[i+1]), without), name
		}
		return to, nil
	}
	key := r.Key(s)
	for i := 0; i < len(key); {
		_, from, next := field(key, i) // nothing but whole labels is in a key
		name, value, ok := cutLabel(key[from:next])
		if !ok {
			return to, errors.New("a label of the series is not a protobuf message Label")
		}
		if isBefore(name, last) {
			return r.appendSortedKey(to[:begin], s, without)
		}
		to, last = appendLabel(to, name, value, without), name
		i = next
	}
	return to, nil
}

// isBefore reports whether name sorts before last. Names mostly differ in their first byte,
// so that sorted labels seldom cost more than one comparison each.
func isBefore(name, last []byte) bool {
	if len(name) > 0 && len(last) > 0 && name[0] != last[0] {
		return name[0] < last[0]
	}
	return string(name) < string(last)
}

// appendSortedKey is AppendSeriesKey for labels that are not sorted.
func (r *Request) appendSortedKey(to []byte, s *Series, without string) ([]byte, error) {
	all, err := r.Labels(nil, s)
	SortLabels(all)
	to = append(to, noKind)
	for _, l := range all {
		to = appendLabel(to, l.Name, l.Value, without)
	}
	return to, err
}

// SortLabels sorts labels by their names; those with the same name keep their order.
func SortLabels(all []Label) {
	slices.SortStableFunc(all, func(a, b Label) int { return bytes.Compare(a.Name, b.Name) })
}

func appendLabel(to, name, value []byte, without string) []byte {
	if len(value) == 0 || string(name) == without {
		return to
	}
	to = append(binary.AppendUvarint(to, uint64(len(name))), name...)
	return append(binary.AppendUvarint(to, uint64(len(value))), value...)
}

// cutLabel is decode, with a straight line for short labels as everybody writes them, which
// saves a third of what a series costs. Two slices stay in registers; a Label would not,
// and take twice as long.
func cutLabel(b []byte) (name, value []byte, ok bool) {
	if len(b) > 2 && b[0] == 1<<3|wireBytes && b[1] < 0x80 {
		at := 2 + int(b[1])
		if at+1 < len(b) && b[at] == 2<<3|wireBytes && b[at+1] < 0x80 && at+2+int(b[at+1]) == len(b) {
			return b[2:at], b[at+2:], true
		}
	}
	var l Label
	ok = l.decode(b)
	return l.Name, l.Value, ok
}
