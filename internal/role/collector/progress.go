package collector

import "sync"

// progress computes the second up to which all windows were pushed, including empty windows.
// Each listener and the flusher report to it once a second.
type progress struct {
	mu    sync.Mutex
	told  int64 // the last result of `next`
	marks map[*mark]bool
}

// mark is the progress of one listener, in Unix seconds.
type mark struct {
	open    int64   // the open window; all windows before it are closed
	waiting []int64 // closed windows that are not pushed yet, the oldest first
	ended   bool    // there will be no more windows
}

func newProgress() *progress {
	return &progress{marks: map[*mark]bool{}}
}

// begin notes that a listener starts reading: its windows begin at `open`.
func (p *progress) begin(m *mark, open int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks[m] = true
	m.open = open
}

// close notes that a listener's window is closed, and which window is open now. The closed window
// is about to be handed to the flusher, unless it is empty.
func (p *progress) close(m *mark, closed, open int64, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.open = open
	if !empty {
		m.waiting = append(m.waiting, closed)
	}
}

// end notes that a listener has closed its last window.
func (p *progress) end(m *mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.ended = true
}

// pushed notes that a listener's oldest window was pushed, or given up and counted.
func (p *progress) pushed(m *mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(m.waiting) > 0 {
		m.waiting = m.waiting[1:]
	}
}

// through returns the last result of `next`, or the present second if there are no listeners.
func (p *progress) through(now int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.marks) == 0 {
		return now
	}
	return p.told
}

// next returns the Unix second before which all windows were pushed, and whether it is later than
// the last answer. Without listeners the result is the present second, since there are no
// windows.
func (p *progress) next(now int64) (through int64, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.marks {
		switch {
		case len(m.waiting) > 0:
			now = min(now, m.waiting[0])
		case m.ended:
			delete(p.marks, m)
		default:
			now = min(now, m.open)
		}
	}
	later = now > p.told
	p.told = max(p.told, now)
	return now, later
}
