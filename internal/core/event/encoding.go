package event

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// version is the first byte of an encoded event.
const version = 1

// Append appends everything but the tenant and the time: the version, then the strings below in this
// order, then the tags. Each string follows its length as a uvarint.
func (e *Event) Append(b []byte) []byte {
	b = append(b, version)
	for _, s := range []string{e.Title, e.Text, e.Host, e.Key, e.Priority, e.Source, e.Alert} {
		b = appendString(b, s)
	}
	for _, tag := range e.Tags {
		b = appendString(b, tag)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var (
	errVersion = fmt.Errorf("its version is not %d", version)
	errShort   = errors.New("cut short")
	errTags    = errors.New("its tags are cut short")
)

// Parse reads what Append wrote. The event owns its memory.
func (e *Event) Parse(b []byte) error {
	if len(b) == 0 || b[0] != version {
		return errVersion
	}
	rest, ok := string(b[1:]), true
	for _, s := range []*string{&e.Title, &e.Text, &e.Host, &e.Key, &e.Priority, &e.Source, &e.Alert} {
		if *s, rest, ok = cutString(rest); !ok {
			return errShort
		}
	}
	e.Tags = nil
	for rest != "" {
		var tag string
		if tag, rest, ok = cutString(rest); !ok {
			return errTags
		}
		e.Tags = append(e.Tags, tag)
	}
	return nil
}

// cutString cuts one string, which follows its length, off the front of s.
func cutString(s string) (head, rest string, ok bool) {
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(s)-size) {
		return "", "", false
	}
	return s[size : size+int(n)], s[size+int(n):], true
}

// AppendDated appends the time, a varint, and then what Append appends.
func (e *Event) AppendDated(b []byte) []byte { return e.Append(binary.AppendVarint(b, e.Time)) }

// ParseDated reads what AppendDated wrote. It refuses an event that exceeds the limits of this package.
func (e *Event) ParseDated(b []byte) error {
	t, n := binary.Varint(b)
	if n <= 0 {
		return errShort
	}
	e.Time = t
	if err := e.Parse(b[n:]); err != nil {
		return err
	}
	if len(e.Title) > MaxTitle || len(e.Text) > MaxText || len(e.Tags) > MaxTags {
		return fmt.Errorf("its title has %d bytes of at most %d, its text %d of at most %d, and it has %d tags of at most %d",
			len(e.Title), MaxTitle, len(e.Text), MaxText, len(e.Tags), MaxTags)
	}
	for _, s := range append([]string{e.Host, e.Key, e.Priority, e.Source, e.Alert}, e.Tags...) {
		if len(s) > MaxField {
			return fmt.Errorf("its field %.80q has %d bytes, and at most %d are allowed", s, len(s), MaxField)
		}
	}
	return nil
}
