package window

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// spelling is a context as it stands in a datagram.
type spelling struct {
	kind             byte // the type of a metric, 0 for a check
	name, tags, rest []byte
}

// A context is a block of the table's memory: a header, whose numbers are
// little-endian, and the three parts of its spelling.
//
//	 0        4        8      10     12     14   15    16       20
//	+--------+--------+------+------+------+----+-----+--------+------ - -
//	| series | next   | name | tags | rest |kind|scale| used   | name, tags, rest
//	+--------+--------+------+------+------+----+-----+--------+------ - -
const (
	seriesAt   = 0  // number of its record
	nextAt     = 4  // the next context of the series, 0 for none
	shapeAt    = 8  // see shapeOf
	scaleAt    = 15 // index of its values' factor in the table's scales
	usedAt     = 16 // ordinal of the last window with a sample; 0 for the only context of its series
	headerSize = 20
)

// shapeOf packs the kind and the lengths of the parts into 7 bytes.
func shapeOf(kind byte, name, tags, rest []byte) uint64 {
	return uint64(len(name)) | uint64(len(tags))<<16 | uint64(len(rest))<<32 | uint64(kind)<<48
}

// shapeMask selects the shape in 8 bytes; the last byte is the scale.
const shapeMask = 1<<56 - 1

// hashOf hashes the parts of a context one by one: copying them together first would cost more. The
// seed keeps senders from making contexts that collide.
func (t *Table) hashOf(kind byte, name, tags, rest []byte) uint64 {
	hash := (maphash.Bytes(t.seed, name)+uint64(kind))*hashFactor + maphash.Bytes(t.seed, tags)
	if len(rest) > 0 {
		hash = hash*hashFactor + maphash.Bytes(t.seed, rest)
	}
	return hash
}

// hashFactor is odd and without a pattern, so equal parts do not cancel each other out, and a kind
// or a source changes the upper bits of a hash, too.
const hashFactor = 0x9e3779b97f4a7c15

// rest returns the fields besides name and tags that distinguish contexts. The result is nearly always
// empty. The table owns the result, and overwrites it in the next call.
func (t *Table) rest(host []byte, o *dogstatsd.Origin) []byte {
	if host == nil && !t.options.OriginLabels {
		return nil
	}
	return t.appendRest(host, o)
}

// appendRest appends the rest of a context. Its fields are separated by bytes that cannot occur in
// them: a line ends at \n and a field at |.
func (t *Table) appendRest(host []byte, o *dogstatsd.Origin) []byte {
	dst := t.others[:0]
	if host != nil {
		dst = append(dst, '|')
		dst = append(dst, host...)
	}
	if t.options.OriginLabels {
		for _, field := range [...][]byte{o.Container, o.External, o.Cardinality} {
			dst = append(dst, '\n')
			dst = append(dst, field...)
		}
		if inode := o.UsedInode(); inode != nil {
			dst = append(dst, '\n')
			dst = append(dst, inode...)
		}
	}
	t.others = dst
	return dst
}

func (k *spelling) length() int { return len(k.name) + len(k.tags) + len(k.rest) }

// maxLength is the longest context that is remembered, in bytes.
const maxLength = math.MaxUint16

// find returns the number of a context's series and the factor of its values. The number is 0 if
// the table does not hold the context. `hash` is the context's hash.
func (t *Table) find(hash uint64, kind byte, name, tags, rest []byte) (number uint32, scale float64) {
	length := len(name) + len(tags) + len(rest)
	if length > maxLength {
		return 0, 0
	}
	shape := shapeOf(kind, name, tags, rest)
	search := t.contexts.Search(hash)
	for ref := search.Next(); ref != 0; ref = search.Next() {
		block := t.keys.From(arena.Ref(ref))
		if binary.LittleEndian.Uint64(block[shapeAt:])&shapeMask != shape {
			continue
		}
		raw := block[headerSize : headerSize+length]
		if string(raw[:len(name)]) != string(name) || string(raw[len(name):len(name)+len(tags)]) != string(tags) ||
			string(raw[len(name)+len(tags):]) != string(rest) {
			continue
		}
		if used := binary.LittleEndian.Uint32(block[usedAt:]); used != 0 && used != t.ordinal {
			binary.LittleEndian.PutUint32(block[usedAt:], t.ordinal)
		}
		return binary.LittleEndian.Uint32(block[seriesAt:]), t.scales[block[scaleAt]]
	}
	return 0, 0
}

// add resolves a new context to its series and factor. It does not remember a context whose series
// has no place, since a flood of such contexts must not grow the table. The samples of such a
// context go to an overflow series, or nowhere if add returns 0.
func (t *Table) add(k *spelling, resolved *Resolution, samples uint64, now int64) (number uint32, scale float64) {
	t.stats.Resolved++
	// Too long to be remembered.
	long := k.length() > maxLength || t.options.Limits != nil && t.options.Limits.TooLong(k.length())
	if resolved.Drop {
		t.stats.Dropped += samples
		if t.dropped < maxDropped && !long {
			t.dropped++
			number = t.newRecord()
			*t.records.at(number) = record{flags: live | drops, used: t.ordinal}
			t.remember(k, number, 0)
		}
		return 0, 1
	}
	number, verdict := t.admit(k, resolved, samples, now)
	if number == 0 {
		return t.overLimit(verdict, resolved, samples, now), resolved.Scale
	}
	factor, known := t.scaleOf(resolved.Scale)
	if t.records.at(number).spellings == maxSpellings || long || !known {
		t.stats.Respellings++
		return number, resolved.Scale
	}
	t.remember(k, number, factor)
	return number, resolved.Scale
}

// admit returns the series of a new context, or 0 if the series has no place.
func (t *Table) admit(k *spelling, resolved *Resolution, samples uint64, now int64) (uint32, limit.Verdict) {
	hash := t.hash(resolved.Key, resolved.Source)
	search := t.series.Search(hash)
	for number := search.Next(); number != 0; number = search.Next() {
		r := t.records.at(number)
		if t.source(r) == resolved.Source && string(t.key(r)) == string(resolved.Key) {
			return number, limit.Verdict{}
		}
	}
	var verdict limit.Verdict
	switch {
	case t.options.Limits != nil:
		verdict = t.options.Limits.Admit(now, &limit.Claim{
			Key: resolved.Key, Source: resolved.Source, Unnamed: resolved.Unnamed,
			Length: k.length(), Samples: samples, Sender: resolved.Sender, Container: resolved.Container,
		})
	case len(resolved.Key) > maxOwnKey:
		verdict = limit.Verdict{Fate: limit.Refused, Reason: limit.SeriesBytes}
	}
	if verdict.Fate != limit.Admitted {
		return 0, verdict
	}
	number := t.newSeries(resolved, verdict.Place, now)
	t.records.at(number).flags |= live
	t.series.Insert(hash, number)
	t.held++
	return number, verdict
}

func (t *Table) hash(key []byte, source uint64) uint64 {
	return maphash.Bytes(t.seed, key) + source*hashFactor
}

// newSeries makes the record of a series, and puts it into the open window. `place` is 0 for an
// overflow series, or without limits.
func (t *Table) newSeries(resolved *Resolution, place limit.Place, now int64) uint32 {
	number := t.newRecord()
	r := t.records.at(number)
	r.class = classOf(resolved.Shard, t.policyOf(resolved.Policy))
	r.flags |= passerBy
	if series.Kind(resolved.Key[0]) == series.UpDown {
		r.flags |= upDown
	}
	if r.place = uint32(place); place == 0 {
		t.setKey(r, resolved.Key)
	}
	if resolved.Source != 0 {
		t.extend(r).source = resolved.Source
	}
	t.enter(number, r, now)
	return number
}

// scaleOf returns the number of a factor. `ok` is false if there are too many factors.
func (t *Table) scaleOf(scale float64) (number uint8, ok bool) {
	for i, known := range t.scales {
		if known == scale {
			return uint8(i), true
		}
	}
	if len(t.scales) > math.MaxUint8 {
		return 0, false
	}
	t.scales = append(t.scales, scale)
	return uint8(len(t.scales) - 1), true
}

// remember keeps a context.
func (t *Table) remember(k *spelling, series uint32, scale uint8) {
	r := t.records.at(series)
	ref, block := t.keys.Alloc(headerSize + k.length())
	binary.LittleEndian.PutUint32(block[seriesAt:], series)
	binary.LittleEndian.PutUint32(block[nextAt:], uint32(r.first))
	binary.LittleEndian.PutUint64(block[shapeAt:], shapeOf(k.kind, k.name, k.tags, k.rest)|uint64(scale)<<56)
	binary.LittleEndian.PutUint32(block[usedAt:], 0)
	if r.first != 0 {
		binary.LittleEndian.PutUint32(block[usedAt:], t.ordinal)
		if r.spellings == 1 {
			binary.LittleEndian.PutUint32(t.keys.Bytes(r.first, headerSize)[usedAt:], t.ordinal)
		}
	}
	raw := block[headerSize:]
	raw = raw[copy(raw, k.name):]
	raw = raw[copy(raw, k.tags):]
	copy(raw, k.rest)
	r.first = ref
	r.spellings++
	t.contexts.Insert(t.hashOf(k.kind, k.name, k.tags, k.rest), uint32(ref))
	t.stats.Contexts++
}

// forget removes a context from the table and returns the next one of its series.
func (t *Table) forget(ref arena.Ref) (next arena.Ref) {
	head := t.keys.Bytes(ref, headerSize)
	name := int(binary.LittleEndian.Uint16(head[shapeAt:]))
	tags := int(binary.LittleEndian.Uint16(head[shapeAt+2:]))
	rest := int(binary.LittleEndian.Uint16(head[shapeAt+4:]))
	kind := head[shapeAt+6]
	next = arena.Ref(binary.LittleEndian.Uint32(head[nextAt:]))
	size := headerSize + name + tags + rest
	raw := t.keys.Bytes(ref, size)[headerSize:]
	t.contexts.Remove(t.hashOf(kind, raw[:name], raw[name:name+tags], raw[name+tags:]), uint32(ref))
	t.keys.Free(ref, size)
	t.stats.Contexts--
	return next
}
