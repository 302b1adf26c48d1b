package collector

import "sync"

// progress knows up to which second all windows were pushed, including empty ones. Listeners
// and the flusher report to it, once a second each.
type progress struct {
	mu        sync.Mutex
	told      int64 // the last answer of next
	listeners map[*listener]*mark
}

// mark is the progress of one listener, in Unix seconds.
type mark struct {
	open    int64   // the open window; all before it are closed
	waiting []int64 // closed ones that are not pushed yet, the oldest first
	ended   bool    // there will be no more windows
}

func newProgress() *progress {
	return &progress{listeners: map[*listener]*mark{}}
}

// of returns a listener's mark. The caller holds p.mu.
func (p *progress) of(l *listener) *mark {
	m := p.listeners[l]
	if m == nil {
		m = new(mark)
		p.listeners[l] = m
	}
	return m
}

// begin notes that a listener starts reading: its windows begin at open.
func (p *progress) begin(l *listener, open int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(l).open = open
}

// close notes that a listener's window is closed, and which one is open now. The closed one is
// about to be handed to the flusher, unless it is empty.
func (p *progress) close(l *listener, closed, open int64, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.of(l)
	m.open = open
	if !empty {
		m.waiting = append(m.waiting, closed)
	}
}

// end notes that a listener has closed its last window.
func (p *progress) end(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(l).ended = true
}

// pushed notes that a listener's oldest window was pushed, or given up and counted.
func (p *progress) pushed(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.of(l); len(m.waiting) > 0 {
		m.waiting = m.waiting[1:]
	}
}

// next returns the Unix second before which all windows were pushed, and whether it has moved.
// Without listeners it is the present, since no window will ever come.
func (p *progress) next(now int64) (through int64, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, m := range p.listeners {
		switch {
		case len(m.waiting) > 0:
			now = min(now, m.waiting[0])
		case m.ended:
			delete(p.listeners, l)
		default:
			now = min(now, m.open)
		}
	}
	later = now > p.told
	p.told = max(p.told, now)
	return now, later
}
