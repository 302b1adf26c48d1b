package outcome

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	encoding = 1 // the version of the bytes

	maxText = 64 << 10 // bytes of each text of the example
)

// ErrNewer means that a newer program encoded the outcome: the outcome has a version or a reason
// that this program does not know.
var ErrNewer = errors.New("written by a newer version")

var errMalformed = errors.New("outcome: it is malformed")

// Append appends the bytes of the outcome: a version, what was written and dropped, the number of
// reasons, what was refused for each reason, NotKept, and the two texts of the first refusal. Equal
// outcomes have equal bytes.
func (o *Outcome) Append(b []byte) []byte {
	b = append(b, encoding)
	b = o.Dropped.append(o.Written.append(b))
	b = append(b, byte(NumReasons))
	for _, refused := range o.Refused {
		b = refused.append(b)
	}
	b = binary.AppendUvarint(b, uint64(o.NotKept))
	for _, text := range []string{o.First.Series, o.First.Cause} {
		text = text[:min(len(text), maxText)]
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

func (c Counts) append(b []byte) []byte {
	for _, n := range [...]int{c.Samples, c.Histograms, c.Exemplars, c.Series} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// Parse is the inverse of Append. It copies the texts.
func (o *Outcome) Parse(b []byte) error {
	*o = Outcome{}
	if len(b) > 0 && b[0] > encoding {
		return fmt.Errorf("outcome: it has version %d, and this program reads %d: %w", b[0], encoding, ErrNewer)
	}
	r := reader{b: b}
	if r.byte() != encoding {
		return errMalformed
	}
	o.Written, o.Dropped = r.counts(), r.counts()
	reasons := r.byte()
	if reasons > byte(NumReasons) {
		return fmt.Errorf("outcome: it has %d reasons, and this program knows %d: %w", reasons, NumReasons, ErrNewer)
	}
	for i := range o.Refused[:reasons] {
		o.Refused[i] = r.counts()
	}
	o.NotKept = r.number()
	o.First = Example{r.text(), r.text()}
	if r.bad || len(r.b) > 0 {
		return errMalformed
	}
	return nil
}

// reader cuts fields off b. Once a field is missing, bad is set, and all further fields are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *reader) counts() (c Counts) {
	for _, n := range [...]*int{&c.Samples, &c.Histograms, &c.Exemplars, &c.Series} {
		*n = r.number()
	}
	return c
}

// number refuses numbers that are not in their shortest form, so that each outcome has one encoding.
func (r *reader) number() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > math.MaxInt || size > 1 && r.b[size-1] == 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

func (r *reader) text() string {
	n := r.number()
	if n > min(len(r.b), maxText) {
		r.fail()
		return ""
	}
	text := string(r.b[:n])
	r.b = r.b[n:]
	return text
}

func (r *reader) fail() { r.b, r.bad = nil, true }
