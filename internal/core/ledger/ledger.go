// Package ledger keeps the books of one process lifetime: what became of each sample and of each
// datagram, by tenant and reason. The code that counts samples posts them to the ledger a few times per
// window and flush, never one by one. The ledger knows no clock: callers hand in the ends of windows.
//
// A sample is one value on the wire, not weighted by its sampling rate; an unreadable line counts
// as one. Received samples are counted where they are read, and their fates elsewhere. So a
// difference between both counts reveals our own mistakes.
//
// Sum adds up the books of the nodes of a cluster.
package ledger

import (
	"fmt"
	"sync"
)

// Account is a source of samples, or a state. Each sample is in exactly one state.
type Account uint8

const (
	// Sources. A transfer from Outside to another source counts samples that came. A transfer from that
	// source to a state says what became of the samples.
	Outside   Account = iota
	Received          // read from sockets
	Restored          // were in tiles when the process started
	Collected         // were in the log of the group, which has the windows of all collectors

	// Final states, each with a reason.
	Malformed
	Refused
	Late
	Unsent
	Discarded // in whole windows, by a process that stores nothing

	// States on the way to the store, and the store.
	HandedOver // acknowledged by the group's leader; the members get the samples from the group's log
	Window     // in a window of the collector
	Tile       // in a tile of the aggregator
	Stored
	numAccounts
)

var accountNames = [numAccounts]string{
	"outside", "received", "restored", "collected", "malformed", "refused", "late", "unsent", "discarded", "handed_over",
	"window", "tile", "stored",
}

// String returns the account's name in metrics and documentation.
func (a Account) String() string { return accountNames[a] }

// hasReason reports whether samples end in the account, each for one of several reasons.
func (a Account) hasReason() bool { return Malformed <= a && a <= Discarded }

// Transfer moves samples from one account to another.
type Transfer struct {
	From, To Account
	Reason   string // one of a fixed set; empty if To has no reasons
	Samples  uint64
}

// check panics on an impossible transfer. Our code makes all transfers, so a wrong one is a bug.
func (t Transfer) check() {
	var ok bool
	switch t.From {
	case Outside:
		ok = t.To == Received || t.To == Restored || t.To == Collected
	case Received, Restored, Collected, Window, Tile:
		ok = t.To >= Malformed && t.To != t.From
	}
	if !ok || t.To.hasReason() != (t.Reason != "") {
		panic(fmt.Sprintf("BUG: transfer of %d samples from %v to %v for reason %q", t.Samples, t.From, t.To, t.Reason))
	}
}

// OfWhich is a property that samples have besides their state.
type OfWhich uint8

const (
	Folded    OfWhich = iota // counted in the overflow series of their metric
	LateKept                 // their tile was closed, and the oldest open tile took them
	Ahead                    // their time was too far in the future, and the last open tile took them
	Respelled                // their series has too many spellings to remember another
	numOfWhich
)

// MaxTenants bounds the tenants with their own books. Further tenants share the books of Others, so
// senders cannot make memory or metrics grow.
const MaxTenants = 1000

// Others is the name of the books that the tenants beyond MaxTenants share. No tenant can have this
// name.
const Others = "(others)"

// Ledger is the books of all tenants.
type Ledger struct {
	mu       sync.Mutex
	boundary int64 // Unix ms, end of the last window
	tenants  map[string]*tenant
}

// tenant has the books of one tenant.
type tenant struct {
	all       accounts
	copied    accounts // what the log of the group brought: see Tenant.Copied
	ofWhich   [numOfWhich]uint64
	datagrams Datagrams
	clients   *[numClientCounts]float64 // nil until a client reports
}

// accounts have the samples of each account.
type accounts struct {
	samples [numAccounts]int64 // negative if more samples left the account than came
	reasons [numAccounts]map[string]uint64
}

// New returns empty books.
func New() *Ledger { return &Ledger{tenants: map[string]*tenant{}} }

// of(name) returns the books of a tenant; the caller holds the lock.
func (l *Ledger) of(name string) *tenant {
	t := l.tenants[name]
	switch {
	case t != nil:
		return t
	case len(l.tenants) >= MaxTenants && name != Others:
		return l.of(Others)
	}
	t = new(tenant)
	l.tenants[name] = t
	return t
}

// Post makes all transfers at once: Books shows all of them or none. If more samples leave an
// account than came, the books show a difference.
func (l *Ledger) Post(tenant string, transfers ...Transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	books := l.of(tenant)
	for _, t := range transfers {
		t.check()
		if t.Samples == 0 {
			continue
		}
		books.all.post(t)
		switch {
		case t.From == Restored && t.To == Tile:
			books.copied.samples[Restored] += int64(t.Samples)
			books.copied.post(t)
		case t.To == Collected || t.From == Collected || t.From == Tile:
			books.copied.post(t)
		}
	}
}

func (a *accounts) post(x Transfer) {
	if x.From == Window || x.From == Tile {
		a.samples[x.From] -= int64(x.Samples)
	}
	a.samples[x.To] += int64(x.Samples)
	if x.To.hasReason() {
		if a.reasons[x.To] == nil {
			a.reasons[x.To] = map[string]uint64{}
		}
		a.reasons[x.To][x.Reason] += x.Samples
	}
}

// Note counts samples that have a property of OfWhich.
func (l *Ledger) Note(tenant string, which OfWhich, samples uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(tenant).ofWhich[which] += samples
}

// Datagrams are the datagrams that the sockets of a tenant saw. Each datagram is counted in one field.
// The field RefusedConnections counts connections instead.
type Datagrams struct {
	Read               uint64 `json:"read"`                // datagrams, and frames of streams
	KernelDropped      uint64 `json:"kernel_dropped"`      // the socket's buffer was full
	Oversized          uint64 `json:"oversized"`           // refused, since longer than max_packet
	CutFrames          uint64 `json:"cut_frames"`          // a stream ended inside the frame
	RefusedConnections uint64 `json:"refused_connections"` // there were too many streams
}

// Datagrams adds what the sockets saw since the last call.
func (l *Ledger) Datagrams(tenant string, more Datagrams) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.of(tenant).datagrams
	d.Read += more.Read
	d.KernelDropped += more.KernelDropped
	d.Oversized += more.Oversized
	d.CutFrames += more.CutFrames
	d.RefusedConnections += more.RefusedConnections
}

// Close says that all samples of a window are posted. `boundary` is the window's end, in Unix
// milliseconds. Each listener calls Close for the same window.
func (l *Ledger) Close(boundary int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boundary = max(l.boundary, boundary)
}
