package seriescache

// pageLen is small, since a thousand tenants have a cache each, and large enough for a million series to have few
// pages.
const pageLen = 128

// pages is a list that grows without being copied: copies of a million series would be 48 MB of garbage each time, and
// would hold up a write. An element keeps its place.
type pages[T any] struct {
	pages []*[pageLen]T
	len   uint32
}

func (p *pages[T]) at(i uint32) *T { return &p.pages[i/pageLen][i%pageLen] }

// add adds a zero element, and returns its place.
func (p *pages[T]) add() uint32 {
	if int(p.len) == len(p.pages)*pageLen {
		p.pages = append(p.pages, new([pageLen]T))
	}
	p.len++
	return p.len - 1
}
