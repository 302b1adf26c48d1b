package event

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

var full = Event{
	Time: 1_795_228_020_000, Title: "deploy", Text: "done\nin 3 s", Tags: []string{"env:prod", "team:a"}, Host: "h",
	Key: "k", Priority: "low", Source: "ci", Alert: "success",
}

func TestEncoding(t *testing.T) {
	for _, want := range []Event{{}, {Time: -1, Title: "before 1970"}, full} {
		got := Event{Tags: []string{"of another event"}, Host: "of another event"}
		if err := got.ParseDated(want.AppendDated(nil)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is read as %+v, error %v", want, got, err)
		}
	}
}

func TestParseDatedRefuses(t *testing.T) {
	for why, b := range map[string][]byte{
		"nothing":         nil,
		"a time alone":    {0},
		"another version": {0, 2},
		"too few strings": {0, 1, 0, 0},
		"a cut tag":       append(full.AppendDated(nil), 3, 'a'),
		"a long title":    (&Event{Title: strings.Repeat("t", MaxTitle+1)}).AppendDated(nil),
		"a long text":     (&Event{Text: strings.Repeat("t", MaxText+1)}).AppendDated(nil),
		"a long host":     (&Event{Host: strings.Repeat("t", MaxField+1)}).AppendDated(nil),
		"a long tag":      (&Event{Tags: []string{strings.Repeat("t", MaxField+1)}}).AppendDated(nil),
		"too many tags":   (&Event{Tags: make([]string, MaxTags+1)}).AppendDated(nil),
	} {
		if err := new(Event).ParseDated(b); err == nil {
			t.Errorf("%s: read", why)
		}
	}
}

// FuzzParseDated checks that an event is written again as it was read, except that numbers get their
// shortest form.
func FuzzParseDated(f *testing.F) {
	f.Add(full.AppendDated(nil))
	f.Add((&Event{}).AppendDated(nil))
	f.Add([]byte{0, 1, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again Event
		if e.ParseDated(b) != nil {
			return
		}
		written := e.AppendDated(nil)
		if len(written) > len(b) {
			t.Fatalf("%x is read as %+v, but written as more bytes: %x", b, e, written)
		}
		if err := again.ParseDated(written); err != nil || !bytes.Equal(again.AppendDated(nil), written) {
			t.Fatalf("%x is read as %+v, error %v", written, again, err)
		}
	})
}
