package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/role/group"
)

// damageFile says that the state of this node was outvoted: docs/format/cluster.md. Without it, a restart would
// trust the state again, since marks begin anew.
const damageFile = "damaged.json"

// readDamage reads whether an earlier process found this node's state damaged.
func (s *server) readDamage() error {
	text, err := os.ReadFile(s.path(damageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read whether this node is damaged: %w", err)
	}
	var d answer.Damage
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("read whether this node is damaged: %s: %w", s.path(damageFile), err)
	}
	s.damaged.Store(&d)
	return nil
}

// damage returns what of this node's data is damaged, or nil.
func (s *server) damage() *answer.Damage { return s.damaged.Load() }

// judgeState finds this node damaged if most nodes agree on a state that it does not have.
func (s *server) judgeState(v marks.Verdict) error {
	d := s.damaged.Load()
	if d == nil && v.Outvoted == 0 {
		return nil
	}
	if d == nil {
		d = &answer.Damage{Since: time.Now().UTC(), What: fmt.Sprintf("its state is not that of most nodes since entry %d, "+
			"or up to %d entries before", v.Outvoted, marks.Every)}
		s.damaged.Store(d)
		s.logger.Error("the state of this node is damaged: it answers no queries and does not lead. Report this bug, or "+
			"the machine computes wrongly", "first_entry", v.Outvoted)
		if g, is := s.aggregator.(*group.Group); is {
			g.Demote()
		}
	}
	if _, err := os.Stat(s.path(damageFile)); err == nil {
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.writeOnce(damageFile, append(text, '\n'))
}
