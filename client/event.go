package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Event is a dated text. Only Title is required.
type Event struct {
	Title, Text    string
	Time           time.Time // zero: the server uses the time of arrival
	Host           string
	AggregationKey string
	Priority       string // normal or low
	SourceType     string
	AlertType      string // info, success, warning or error
	Tags           []string
}

// Status is the result of a service check.
type Status uint8

// The results of a service check.
const (
	OK Status = iota
	Warning
	Critical
	Unknown
)

// ServiceCheck reports the state of a service. Only Name is required.
type ServiceCheck struct {
	Name    string
	Status  Status
	Time    time.Time // zero: the server uses the time of arrival
	Host    string
	Message string
	Tags    []string
}

// events are lines waiting for the next flush.
type events struct {
	mu     sync.Mutex
	lines  []eventLine
	closed bool
}

type eventLine struct {
	text string
	kind kind
}

var errCrowded = fmt.Errorf("%d events and checks are already waiting to be sent", maxEvents)

// Event queues an event for the next flush. It returns an error if the event will not be sent, because
// it is malformed or longer than a packet, or because too many events are waiting.
func (c *Client) Event(e Event) error {
	if c == nil {
		return nil
	}
	line, err := c.eventText(&e)
	if err == nil {
		err = c.push(event, line)
	} else {
		c.counts.turnAway(refused, event)
	}
	if err != nil {
		return fmt.Errorf("event %q: %w", e.Title, err)
	}
	return nil
}

// ServiceCheck queues a service check for the next flush. It fails for the same reasons as Event does.
func (c *Client) ServiceCheck(s ServiceCheck) error {
	if c == nil {
		return nil
	}
	line, err := c.checkText(&s)
	if err == nil {
		err = c.push(check, line)
	} else {
		c.counts.turnAway(refused, check)
	}
	if err != nil {
		return fmt.Errorf("service check %q: %w", s.Name, err)
	}
	return nil
}

func (c *Client) push(k kind, line string) error {
	e := &c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(line) > c.options.PacketBytes:
		c.counts.turnAway(refused, k)
		return fmt.Errorf("is %d bytes long, but a packet holds at most %d", len(line), c.options.PacketBytes)
	case e.closed:
		c.counts.turnAway(unsent, k)
		return errClosed
	case len(e.lines) >= maxEvents:
		c.counts.turnAway(tooMany, k)
		return errCrowded
	}
	e.lines = append(e.lines, eventLine{line, k})
	c.counts.taken[k].Add(1)
	return nil
}

// take returns the waiting lines, oldest first.
func (e *events) take(last bool) (lines []eventLine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines, e.lines, e.closed = e.lines, nil, e.closed || last
	return lines
}

func (c *Client) eventText(e *Event) (string, error) {
	if e.Title == "" {
		return "", errors.New("has no title")
	}
	for _, w := range []struct {
		field, word string
		known       []string
	}{
		{"Priority", e.Priority, []string{"normal", "low"}},
		{"AlertType", e.AlertType, []string{"info", "success", "warning", "error"}},
	} {
		if w.word != "" && !slices.Contains(w.known, w.word) {
			return "", fmt.Errorf("field %s = %q: must be one of %s", w.field, w.word, strings.Join(w.known, ", "))
		}
	}
	unix, err := unixOf(e.Time)
	if err != nil {
		return "", err
	}
	title, text := oneLine(e.Title), oneLine(e.Text)
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d,%d}:%s|%s", eventMark, len(title), len(text), title, text)
	for _, f := range [][2]string{{"d:", unix}, {"h:", e.Host}, {"k:", e.AggregationKey}, {"p:", e.Priority},
		{"s:", e.SourceType}, {"t:", e.AlertType}} {
		c.writeField(&b, f[0], f[1])
	}
	b.WriteString(c.tagsField(e.Tags))
	return b.String(), nil
}

func (c *Client) checkText(s *ServiceCheck) (string, error) {
	if s.Name == "" {
		return "", errors.New("has no name")
	}
	if s.Status > Unknown {
		return "", fmt.Errorf("field Status = %d: must be OK, Warning, Critical or Unknown", s.Status)
	}
	unix, err := unixOf(s.Time)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("_sc|" + c.options.Prefix + c.respell(s.Name, notInNames) + "|" + strconv.Itoa(int(s.Status)))
	c.writeField(&b, "d:", unix)
	c.writeField(&b, "h:", s.Host)
	b.WriteString(c.tagsField(s.Tags))
	c.writeField(&b, "m:", strings.ReplaceAll(oneLine(s.Message), "m:", `m\:`))
	return b.String(), nil
}

var lineBreaks = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\r", `\n`)

// oneLine escapes line breaks as the protocol does.
func oneLine(s string) string { return lineBreaks.Replace(s) }

func (c *Client) writeField(b *strings.Builder, key, value string) {
	if value != "" {
		b.WriteString("|" + key + c.respell(value, notInFields))
	}
}

func (c *Client) respell(s, bad string) string {
	clean := replace(s, bad)
	if clean != s {
		c.counts.cleaned.Add(1)
	}
	return clean
}

// tagsField returns the end of a line: its tags, and the client's constant text.
func (c *Client) tagsField(tags []string) string {
	if !isClean("", "", tags) {
		_, tags = cleaned("", "", tags)
		c.counts.cleaned.Add(1)
	}
	if len(tags) == 0 {
		return c.tagless
	}
	return "|#" + strings.Join(tags, ",") + c.tags
}

// unixOf returns a time in Unix seconds as text. Servers accept the years 1970 to 2255.
func unixOf(t time.Time) (string, error) {
	if t.IsZero() {
		return "", nil
	}
	if unix := t.Unix(); unix >= 1 && unix <= 9_000_000_000 {
		return strconv.FormatInt(unix, 10), nil
	}
	return "", fmt.Errorf("field Time = %v: must be from 1970 to 2255", t)
}
