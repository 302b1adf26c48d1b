package tsdb

// noteDamage notes that a closed file of an open store is damaged, or that none is.
func (s *store) noteDamage(cause error) {
	before := s.hurt.Load()
	if cause == nil {
		if before != nil {
			s.hurt.Store(nil)
			s.marks().damaged.Set(0)
			s.logger.Info("a damaged store is whole again: its damaged file is gone")
		}
		return
	}
	now := &BrokenError{Tenant: s.tenant, Store: s.kind, Since: s.now(), Cause: cause, Open: true,
		Damaged: s.others.Load(), WayOut: otherMember}
	if !now.Damaged {
		now.WayOut = wayOut(s.dir, cause)
	}
	if before != nil {
		now.Since = before.Since
	}
	s.hurt.Store(now)
	s.marks().damaged.Set(1)
	if before == nil || before.Error() != now.Error() {
		s.logger.Error("a file of a store is damaged", "err", cause, "way_out", now.WayOut)
	}
}
