package sim

import (
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
)

// eventSender hands over events, one entry at a time, as role/outbox does. It repeats an entry until a
// node answers.
type eventSender struct {
	n      int
	tenant string
	made   int // entries
	try    int
	target *node
}

// eventLog is the event log of a node. A crash loses nothing of it: each write is synced.
type eventLog struct {
	events  []string
	reached uint64 // index of the last entry whose events it has
}

// nextEvents makes an entry with events, and hands it over again and again until it is acknowledged.
func (s *sim) nextEvents(e *eventSender) {
	if s.Now > s.end-quietFor {
		return
	}
	made := entry.Events{Tenant: e.tenant, Hash: s.Rand.Uint64()}
	var titles []string
	for i := range s.Between(1, 3) {
		one := event.Event{Time: base + s.Now, Title: fmt.Sprintf("event %d of entry %d of sender %d", i, e.made, e.n)}
		made.List = made.List.Append(one.AppendDated(nil))
		titles = append(titles, one.Title)
	}
	e.made++
	s.sendEvents(e, made, titles)
}

func (s *sim) sendEvents(e *eventSender, made entry.Events, titles []string) {
	e.try++
	try := e.try
	again := func() {
		if e.try == try {
			if next := s.anyNode(); next != e.target {
				s.covered.retries++
				e.target = next
			}
			s.sendEvents(e, made, titles)
		}
	}
	s.At(s.patience(), nil, again)
	n := e.target
	s.ask(n, func() {
		one := entry.Entry{Kind: entry.KindEvents, Events: made}
		one.Events.Retention, one.Events.MaxEvents = int64(3600*second), 1000+n.n
		s.call(n, func(id member.ID) { n.node.Write(n.clock(), id, &one) }, func(a member.Answer) {
			s.reply(func() {
				switch {
				case e.try != try:
				case a.Err != nil:
					s.At(s.Between(1, 200), nil, again)
				default:
					e.try++
					s.covered.events += len(titles)
					s.oracle.events = append(s.oracle.events, titles...)
					s.At(s.Between(200, 2*second), nil, func() { s.nextEvents(e) })
				}
			})
		})
	})
}

// writeEvents stores the events of a Work, as adapter/eventlog does.
func (s *sim) writeEvents(n *node, w *member.Work) {
	for _, e := range w.Events {
		if e.Index <= n.eventLog.reached {
			s.covered.eventsAgain++
			continue
		}
		n.eventLog.reached = e.Index
		for part := range e.List.All() {
			var one event.Event
			if err := one.ParseDated(part); err != nil {
				s.Fail("node %d: entry %d: %v", n.n, e.Index, err)
			}
			n.eventLog.events = append(n.eventLog.events, one.Title)
		}
	}
}

// sameEvents checks at the end that all nodes have the same events in the same order, and each acknowledged event
// once.
func (s *sim) sameEvents() {
	first := s.nodes[0].eventLog.events
	for _, n := range s.nodes[1:] {
		if !slices.Equal(first, n.eventLog.events) {
			s.Fail("node 0 has the events %q, but node %d has %q", first, n.n, n.eventLog.events)
		}
	}
	times := map[string]int{}
	for _, title := range first {
		if times[title]++; times[title] > 1 {
			s.Fail("%q is stored twice", title)
		}
	}
	for _, title := range s.oracle.events {
		if times[title] == 0 {
			s.Fail("%q was acknowledged, but no node has it", title)
		}
	}
}
