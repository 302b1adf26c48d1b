package tsdb

import (
	"errors"
	"fmt"
	"time"
)

// Retention returns how long a store keeps samples; 0 if there is no such store.
func (s *Stores) Retention(store string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Retention.of(store)
}

// SetRetention changes how long stores keep their samples, in open databases and in databases that
// open later. Blocks that are now too old are deleted within a minute; deleted samples do not come
// back. The largest block of an open database may be as long as before.
//
// The caller has validated the whole section. After an error, some databases have the new retention;
// calling SetRetention again is safe.
func (s *Stores) SetRetention(r Retention) error {
	s.mu.Lock()
	s.cfg.Retention = r
	cfg := s.cfg
	all := s.allStores()
	s.mu.Unlock()
	var errs []error
	for _, st := range all { // an opening may take long, and must not hold up the others
		if err := st.configure(cfg); err != nil {
			errs = append(errs, fmt.Errorf("set the retention of %s: %w", st.dir, err))
		}
	}
	return errors.Join(errs...)
}

// configure applies `cfg`. An open database takes only the settings that can change while it is
// open. The next opening takes all of them.
func (s *store) configure(cfg Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options = cfg.options(s.kind)
	if s.db == nil {
		return nil
	}
	return s.applyOptions()
}
