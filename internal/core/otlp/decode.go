package otlp

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

// Form is the encoding of a request.
type Form uint8

// The encodings. Source: opentelemetry-proto, "OTLP/HTTP".
const (
	Protobuf Form = iota
	JSON
)

// Decode reads an ExportMetricsServiceRequest that Size has accepted. The metrics do not point
// into the body.
func Decode(body []byte, form Form) (pmetric.Metrics, error) {
	r := pmetricotlp.NewExportRequest()
	decode := r.UnmarshalProto
	if form == JSON {
		decode = r.UnmarshalJSON
	}
	if err := decode(body); err != nil {
		return pmetric.Metrics{}, fmt.Errorf("the body is not an ExportMetricsServiceRequest: %w", err)
	}
	return r.Metrics(), nil
}

// ErrTooDeep means that values are nested deeper than in any real request. The decoder is
// recursive: a million levels would overflow its stack and end the process.
var ErrTooDeep = errors.New("the request nests its values too deep")

const (
	maxDepth     = 64           // levels of messages; the string of a point's attribute is at level 7
	maxJSONDepth = 2 * maxDepth // a brace for each message, and a bracket for each list
)

// Size returns how many bytes the decoded metrics of a request take at most. Decoded metrics can
// take far more than the body: an empty data point has 2 bytes on the wire and a hundred in memory.
// Size does not check that the request is valid, but refuses bodies that would crash Decode.
func Size(body []byte, form Form) (int, error) {
	if form == JSON {
		return sizeOfJSON(body)
	}
	return request.size(body, 1)
}

// message describes a protobuf message: its size in memory, and which of its fields are
// messages.
type message struct {
	bytes  int // including the pointer to the message; doubled if lists of the message grow by doubling
	fields map[protowire.Number]*message
	packed protowire.Number // field with numbers that take 1 byte or more on the wire and 8 bytes in memory
}

type fields = map[protowire.Number]*message

// The messages that may be repeated in a request. Field numbers are from
// opentelemetry/proto/metrics/v1, sizes from go.opentelemetry.io/collector/pdata/internal. A
// test compares the sizes with what decoding allocates.
var (
	request = &message{bytes: 64, fields: fields{1: resourceMetrics}}

	resourceMetrics = &message{
		bytes: 192, fields: fields{1: resource, 2: scopeMetrics, deprecatedScopeMetrics: scopeMetrics},
	}
	resource     = &message{fields: fields{1: keyValue, 3: entity}}
	entity       = &message{bytes: 128, fields: fields{3: text, 4: text}}
	text         = &message{bytes: 48}
	scopeMetrics = &message{bytes: 192, fields: fields{1: scope, 2: metric}}
	scope        = &message{fields: fields{3: keyValue}}
	metric       = &message{bytes: 160, fields: fields{
		5: points(number), 7: points(number), 9: points(explicit), 10: points(exponential), 11: points(summary), 12: keyValue,
	}}

	number      = &message{bytes: 160, fields: fields{5: exemplar, 7: keyValue}}
	explicit    = &message{bytes: 240, fields: fields{8: exemplar, 9: keyValue}}
	exponential = &message{bytes: 320, fields: fields{1: keyValue, 8: buckets, 9: buckets, 11: exemplar}}
	summary     = &message{bytes: 160, fields: fields{6: {bytes: 48}, 7: keyValue}}
	buckets     = &message{packed: 2}
	exemplar    = &message{bytes: 208, fields: fields{7: keyValue}}

	keyValue = &message{bytes: 112, fields: fields{2: {}}}
	anyValue = &message{bytes: 64, fields: fields{5: {bytes: 48}, 6: {bytes: 48}}}
)

// Values may contain values.
func init() {
	keyValue.fields[2].fields = anyValue.fields
	anyValue.fields[5].fields = fields{1: anyValue}
	anyValue.fields[6].fields = fields{1: keyValue}
}

// deprecatedScopeMetrics is the field where some senders of 2021 put their metrics, and where
// the decoder still looks. Source: pdata/internal, ResourceMetrics.
const deprecatedScopeMetrics = 1000

func points(of *message) *message { return &message{bytes: 64, fields: fields{1: of}} }

// size returns the bytes that a message takes in memory, with everything in it. It parses unknown
// fields strictly: if it might misjudge the size of a body, that body must not reach the decoder.
func (m *message) size(b []byte, depth int) (int, error) {
	if depth > maxDepth {
		return 0, ErrTooDeep
	}
	size := m.bytes
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, malformed(n)
		}
		b = b[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
				return 0, malformed(n)
			}
			size += growing * n
			if number == m.packed {
				size += growing * packed
			}
			b = b[n:]
			continue
		}
		content, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, malformed(n)
		}
		b = b[n:]
		inside, known := m.fields[number]
		switch {
		case known:
			below, err := inside.size(content, depth+1)
			if err != nil {
				return 0, err
			}
			size += below
		case number == m.packed && m.packed != 0:
			size += growing * packed * len(content)
		default:
			size += growing * len(content)
		}
	}
	return size, nil
}

const (
	growing = 2 // a growing list has room for up to twice its length
	packed  = 8 // bytes in memory of a number that may take 1 byte on the wire
)

func malformed(n int) error {
	return fmt.Errorf("the body is not an ExportMetricsServiceRequest: %w", protowire.ParseError(n))
}

// Bounds, in bytes, of the memory that JSON text takes when decoded. jsonObject is for each brace
// or bracket, which may begin the largest message above. jsonItem is for each item of a list of
// numbers, which may be only a digit and a comma.
const (
	jsonObject = 288
	jsonItem   = 2 * 8
)

func sizeOfJSON(body []byte) (int, error) {
	size, depth := len(body), 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			size += jsonObject
			if depth++; depth > maxJSONDepth {
				return 0, ErrTooDeep
			}
		case '}', ']':
			depth--
		case ',':
			size += jsonItem
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return size, nil
}
