// Package space decides when a group takes no more data because too many of its members' disks are nearly full.
package space

import "slices"

// Short are the members whose disks are nearly full, as they said last.
type Short map[uint64]bool

// Heard is called with what a member says of its disk.
func (s *Short) Heard(member uint64, short bool) {
	switch {
	case !short:
		delete(*s, member)
	case *s == nil:
		*s = Short{member: true}
	default:
		(*s)[member] = true
	}
}

// Stops returns those voters whose disks are nearly full, if a quorum needs one of them: an entry would have to use up
// the room in which this member recovers. Voters that do not answer can be in no quorum. It returns nil while a quorum
// has room.
func (s Short) Stops(voters []uint64, answers func(member uint64) bool) (short []uint64) {
	if len(s) == 0 {
		return nil
	}
	room := 0
	for _, id := range voters {
		switch {
		case s[id]:
			short = append(short, id)
		case answers(id):
			room++
		}
	}
	if room > len(voters)/2 {
		return nil
	}
	return slices.Clip(short)
}
