// Package event defines events: dated texts with a few facts. Texts and facts are cleaned and
// bounded, so that the event log and the code that shows events need no checks of their own.
package event

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// Limits in bytes; longer fields are cut. MaxText is 8 KiB, the largest datagram of a client with
// default settings, so the text of such a client is never cut.
const (
	MaxTitle = 1 << 10
	MaxText  = 8 << 10
	MaxField = 256 // limit of a tag and of every other field
	MaxTags  = 100 // further tags are left out
)

// maxAhead is how far in the future an event's time may be. An event further ahead comes from a
// wrong clock, and would be kept longer than all others. Samples have the same limit.
const maxAhead = 10 * time.Minute

// Event is one event. All strings are valid UTF-8.
type Event struct {
	Tenant   string
	Time     int64 // Unix milliseconds
	Title    string
	Text     string
	Tags     []string // as sent, "key:value" or "bare"; sorted, without repeats
	Host     string
	Key      string // events with the same key belong together
	Priority string // normal or low
	Source   string
	Alert    string // error, warning, info or success
}

// FromDogStatsD returns the event in its own memory. `now` is the time of arrival in Unix
// milliseconds. It becomes the event's time if the client gave no time.
func FromDogStatsD(tenant string, now int64, e *dogstatsd.Event) Event {
	out := Event{
		Tenant:   tenant,
		Time:     now,
		Title:    clean(dogstatsd.Unescape(e.Title), MaxTitle),
		Text:     clean(dogstatsd.Unescape(e.Text), MaxText),
		Tags:     tags(e.Tags),
		Host:     clean(string(e.Host), MaxField),
		Key:      clean(string(e.Key), MaxField),
		Priority: "normal",
		Source:   clean(string(e.Source), MaxField),
		Alert:    "info",
	}
	if e.Time > 0 && e.Time <= (now+maxAhead.Milliseconds())/1000 {
		out.Time = e.Time * 1000
	}
	if len(e.Priority) > 0 {
		out.Priority = clean(string(e.Priority), MaxField)
	}
	if len(e.Alert) > 0 {
		out.Alert = clean(string(e.Alert), MaxField)
	}
	return out
}

func tags(raw []byte) []string {
	var out []string
	for tag := range dogstatsd.Tags(raw) {
		if len(out) == MaxTags {
			break
		}
		out = append(out, clean(string(tag), MaxField))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// clean returns s as valid UTF-8 of at most `limit` bytes, cut between characters.
func clean(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
