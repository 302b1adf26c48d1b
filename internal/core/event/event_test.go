package event

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

const now = 1_700_000_000_500

func TestFromDogStatsD(t *testing.T) {
	plain := Event{Tenant: "a", Time: now, Title: "t", Priority: "normal", Alert: "info"}
	with := func(change func(*Event)) Event {
		e := plain
		change(&e)
		return e
	}
	for _, c := range []struct {
		why  string
		in   dogstatsd.Event
		want Event
	}{
		{"what a client leaves out has the protocol's defaults", dogstatsd.Event{}, plain},
		{"a client's time is in seconds", dogstatsd.Event{Time: 1_600_000_000},
			with(func(e *Event) { e.Time = 1_600_000_000_000 })},
		{"a time a little ahead is kept", dogstatsd.Event{Time: 1_700_000_600},
			with(func(e *Event) { e.Time = 1_700_000_600_000 })},
		{"a time far ahead is replaced: the event would be kept for too long", dogstatsd.Event{Time: 1_700_000_601}, plain},
		{"every field", dogstatsd.Event{Text: []byte("x"), Host: []byte("h"), Key: []byte("k"),
			Priority: []byte("low"), Source: []byte("s"), Alert: []byte("error"), Tags: []byte("b:2,a,b:2")},
			with(func(e *Event) {
				e.Text, e.Host, e.Key, e.Priority, e.Source, e.Alert = "x", "h", "k", "low", "s", "error"
				e.Tags = []string{"a", "b:2"}
			})},
		{"clients write line breaks as two bytes", dogstatsd.Event{Text: []byte(`a\nb`)},
			with(func(e *Event) { e.Text = "a\nb" })},
		{"bytes that are not UTF-8 would break every JSON reader", dogstatsd.Event{Host: []byte("a\xffb")},
			with(func(e *Event) { e.Host = "a\uFFFDb" })},
		{"cut between characters, not inside one", dogstatsd.Event{Host: []byte("x" + strings.Repeat("é", 128))},
			with(func(e *Event) { e.Host = "x" + strings.Repeat("é", 127) })},
	} {
		c.in.Title = []byte("t")
		if got := FromDogStatsD("a", now, &c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.why, got, c.want)
		}
	}
}

func TestBoundsHold(t *testing.T) {
	long := strings.Repeat("ä", MaxText)
	var tags []string
	for i := range MaxTags + 1 {
		tags = append(tags, fmt.Sprint(i, long))
	}
	e := FromDogStatsD("a", now, &dogstatsd.Event{Title: []byte(long), Text: []byte(long), Host: []byte(long),
		Key: []byte(long), Source: []byte(long), Tags: []byte(strings.Join(tags, ","))})
	if len(e.Tags) != MaxTags {
		t.Errorf("%d tags, want %d", len(e.Tags), MaxTags)
	}
	for _, f := range append([]string{e.Host, e.Key, e.Source}, e.Tags...) {
		if len(f) > MaxField || !utf8.ValidString(f) {
			t.Errorf("a field of %d bytes, want at most %d", len(f), MaxField)
		}
	}
	if len(e.Title) > MaxTitle || len(e.Text) > MaxText {
		t.Errorf("a title of %d bytes, want at most %d; a text of %d bytes, want at most %d",
			len(e.Title), MaxTitle, len(e.Text), MaxText)
	}
}
