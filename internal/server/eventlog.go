package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

const (
	eventsFile = "events.db"

	// damagedEventsFile is an eventsFile that was moved aside, since pages of it cannot be read.
	damagedEventsFile = eventsFile + boltfile.Damaged

	// lostEventsFile says that eventsFile was damaged, on a node whose events other nodes have: docs/format/cluster.md.
	// Without it, a restart would take a new file, or one whose last write is lost, for all events.
	lostEventsFile = "events.lost.json"
)

// openEventLog opens the event log, and looks for damage if other nodes have the events, too.
func (s *server) openEventLog() (err error) {
	lost := s.loseEvents
	if !s.inCluster() {
		lost = nil
	}
	s.events, err = eventlog.Open(s.config.Events, s.path(eventsFile), time.Now, lost, s.registry, s.logger)
	if err != nil || !s.inCluster() {
		return err
	}
	var earlier answer.Damage
	err = files.ReadJSON(s.path(lostEventsFile), &earlier)
	switch {
	case err == nil:
		s.eventDamage.Store(&earlier)
	case errors.Is(err, fs.ErrNotExist):
		s.verifyEvents()
	default:
		return fmt.Errorf("read whether events of this node are lost: %w", err)
	}
	return nil
}

// loseEvents keeps that events are damaged, before the event log begins anew or writes again.
func (s *server) loseEvents(cause error) error {
	d := &answer.Damage{Since: time.Now().UTC(), What: fmt.Sprintf("the events: %v", cause)}
	text, err := json.Marshal(d)
	if err == nil {
		err = s.writeOnce(lostEventsFile, append(text, '\n'))
	}
	if err == nil {
		s.eventDamage.Store(d)
	}
	return err
}

// verifyEvents reads all events, and notes whether they are damaged.
func (s *server) verifyEvents() {
	err := s.events.Verify()
	if err == nil || s.eventDamage.Load() != nil {
		return
	}
	s.logger.Error("events of this node are damaged", "error", err)
	if kept := s.loseEvents(err); kept != nil { // the next write may hide that a meta page was damaged
		s.eventDamage.Store(&answer.Damage{Since: time.Now().UTC(), What: err.Error()})
		s.logger.Error("that events of this node are damaged cannot be kept: a restart may not find it", "error", kept)
	}
}

// scrubEvents lets the scrub read the events.
func (s *server) scrubEvents() tsdb.Others {
	size := func() int64 {
		info, err := os.Stat(s.path(eventsFile))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	return tsdb.Others{
		Bytes: size,
		Check: func(pace func(int64) error) {
			s.verifyEvents()
			_ = pace(size()) // an error means that the process stops
		},
	}
}

// followEvents forgets the damage of events that no other node has.
func (s *server) followEvents(others bool) {
	if others || s.eventDamage.Load() == nil {
		return
	}
	if err := s.foundEvents(); err != nil {
		s.logger.Error("it cannot be noted that no other node has the events that are lost", "error", err)
	}
}

// foundEvents forgets that events were lost.
func (s *server) foundEvents() error {
	err := os.Remove(s.path(lostEventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.eventDamage.Store(nil)
	}
	return err
}
