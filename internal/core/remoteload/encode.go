package remoteload

import (
	"encoding/binary"
	"math"
	"slices"
)

// Sizes of the parts of a sample, in both versions.
const (
	valueBytes = 8
	timeBytes  = 6

	valueTag    = 1<<3 | 1
	timeTag     = 2 << 3
	sampleBytes = 1 + valueBytes + 1 + timeBytes
)

// Most values are small whole numbers or multiples of an eighth. A double with at most 21
// significant bits has zeros in four of its eight bytes, so such values compress as well as those
// of real senders.
const (
	maxRound  = 1 << 21
	highBytes = valueBytes / 2
)

func putWide(b []byte, v float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(v)) }

// putHigh writes the last four bytes of a value whose other bytes are zero.
func putHigh(b []byte, v float64) { binary.LittleEndian.PutUint32(b, uint32(math.Float64bits(v)>>32)) }

// putTime writes a time between minTime and maxTime in protobuf's encoding.
func putTime(b []byte, t int64) {
	for i := range timeBytes {
		b[i] = byte(t>>(7*i)) | 0x80
	}
	b[timeBytes-1] &= 0x7f
}

// putDigits overwrites the digits in b with n.
func putDigits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// renderer encodes requests.
type renderer struct {
	Config
	compressor compressor
	labels     []label
	raw        []byte
	roles      []role // for each byte of raw, its role
	samples    []int  // positions in raw where values end
	digits     []int  // positions in raw of the numbers of pods
	digitsPods []int  // pods at these positions
	message    []byte // the inner message being written
}

func newRenderer(c Config) *renderer { return &renderer{Config: c} }

// request encodes the series [first, last) as a request.
func (r *renderer) request(first, last int) request {
	r.raw, r.samples, r.digits, r.digitsPods = r.raw[:0], r.samples[:0], r.digits[:0], r.digitsPods[:0]
	if r.Version == 1 {
		r.version1(first, last)
	} else {
		r.version2(first, last)
	}
	made := request{
		first: first, raw: len(r.raw), values: make([]float64, last-first), samples: make([]uint32, last-first),
	}
	for i := first; i < last; {
		number := i / seriesPerPod
		end := min((number+1)*seriesPerPod, last)
		made.pods = append(made.pods, pod{number: number, from: i - first, to: end - first})
		i = end
	}
	for i := range made.values {
		if slots[(first+i)%seriesPerPod].kind != gauge {
			made.values[i] = float64(mix(r.Seed+uint64(first+i)) % (maxRound / 2))
		}
	}
	r.assign(first)
	var changing []written
	made.body, changing = r.compressor.compress(r.raw, r.roles)
	r.locate(&made, changing)
	return made
}

// assign gives each byte its role.
func (r *renderer) assign(first int) {
	r.roles = slices.Grow(r.roles[:0], len(r.raw))[:len(r.raw)]
	clear(r.roles)
	for i, end := range r.samples {
		setFree(r.roles[end-slots[(first+i)%seriesPerPod].valueBytes() : end])
		for j := range timeBytes {
			r.roles[end+1+j] = firstTime + role(j)
		}
	}
	if r.NewShare > 0 { // without new series, no pod's number changes
		for _, at := range r.digits {
			setFree(r.roles[at : at+podDigits])
		}
	}
}

func setFree(roles []role) {
	for i := range roles {
		roles[i] = free
	}
}

// locate finds, for each byte of raw that changes, its position in the body. Consecutive free bytes
// of raw are consecutive in the body, too.
func (r *renderer) locate(made *request, changing []written) {
	at := make(map[int]uint32, len(changing))
	for _, w := range changing {
		if r.roles[w.from] == free {
			at[int(w.from)] = w.at
			continue
		}
		made.times = append(made.times, timeByte{w.at, byte(r.roles[w.from] - firstTime)})
	}
	for i, end := range r.samples {
		made.samples[i] = at[end-highBytes]
	}
	if r.NewShare == 0 {
		return
	}
	for i, digits := range r.digits {
		p := &made.pods[r.digitsPods[i]-made.pods[0].number]
		p.digits = append(p.digits, at[digits])
	}
}

// version1 encodes a prometheus.WriteRequest, with labels written out in each series.
func (r *renderer) version1(first, last int) {
	for i := first; i < last; i++ {
		r.labels = r.Config.labels(r.labels, i)
		r.message = r.message[:0]
		digits := 0
		for _, l := range r.labels {
			size := 1 + sizeLen(len(l.name)) + len(l.name) + 1 + sizeLen(len(l.value)) + len(l.value)
			r.message = appendString(appendHead(r.message, 1, size), 1, l.name) // TimeSeries.labels
			r.message = appendString(r.message, 2, l.value)
			if l.name == podLabel {
				digits = len(r.message) - podDigits
			}
		}
		r.message = appendSample(r.message)
		r.raw = appendHead(r.raw, 1, len(r.message)) // WriteRequest.timeseries
		r.addDigits(len(r.raw)+digits, i/seriesPerPod)
		r.addMessage(len(r.message))
	}
}

// version2 encodes an io.prometheus.write.v2.Request. Symbols come first, and labels refer to the
// symbols by index. Each series has metadata, as from real senders of version 2.
func (r *renderer) version2(first, last int) {
	symbols := map[string]uint64{"": 0}
	r.raw = appendString(r.raw, 4, "")
	ref := func(text string, pod int) uint64 {
		n, known := symbols[text]
		if !known {
			n = uint64(len(symbols))
			symbols[text] = n
			r.raw = appendString(r.raw, 4, text)
			if pod >= 0 {
				r.addDigits(len(r.raw)-podDigits, pod)
			}
		}
		return n
	}
	refs := make([][]byte, last-first) // for each series, the indexes of its symbols
	helps := make([]uint64, last-first)
	for i := first; i < last; i++ {
		r.labels = r.Config.labels(r.labels, i)
		for _, l := range r.labels {
			pod := -1
			if l.name == podLabel {
				pod = i / seriesPerPod
			}
			to := &refs[i-first]
			*to = binary.AppendUvarint(*to, ref(l.name, -1))
			*to = binary.AppendUvarint(*to, ref(l.value, pod))
		}
		helps[i-first] = ref(slots[i%seriesPerPod].help, -1)
	}
	for i := first; i < last; i++ {
		r.message = appendHead(r.message[:0], 1, len(refs[i-first])) // TimeSeries.labels_refs
		r.message = append(r.message, refs[i-first]...)
		r.message = appendSample(r.message)
		end := len(r.message) // end of the sample
		help := helps[i-first]
		r.message = appendHead(r.message, 5, 2+1+uvarintLen(help)) // TimeSeries.metadata
		r.message = append(r.message, 1<<3, byte(slots[i%seriesPerPod].kind), 3<<3)
		r.message = binary.AppendUvarint(r.message, help)
		r.raw = appendHead(r.raw, 5, len(r.message)) // Request.timeseries
		r.addMessage(end)
	}
}

// addMessage adds the message of a series. The series' sample ends at sampleEnd.
func (r *renderer) addMessage(sampleEnd int) {
	r.samples = append(r.samples, len(r.raw)+sampleEnd-timeBytes-1)
	r.raw = append(r.raw, r.message...)
}

// addDigits remembers where a pod's number is.
func (r *renderer) addDigits(at, pod int) {
	r.digits, r.digitsPods = append(r.digits, at), append(r.digitsPods, pod)
}

// appendSample appends a Sample, field 2 of a TimeSeries in both versions.
func appendSample(b []byte) []byte {
	b = append(appendHead(b, 2, sampleBytes), valueTag)
	b = append(b, make([]byte, sampleBytes-1)...)
	b[len(b)-timeBytes-1] = timeTag
	return b
}

func appendString(b []byte, field int, text string) []byte {
	return append(appendHead(b, field, len(text)), text...)
}

// appendHead begins a field of `size` bytes.
func appendHead(b []byte, field, size int) []byte {
	return binary.AppendUvarint(append(b, byte(field<<3|2)), uint64(size))
}

func sizeLen(n int) int { return uvarintLen(uint64(n)) }

func uvarintLen(n uint64) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
