package entry

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Request is a request of remote write or OTLP, with the decisions made about it.
type Request struct {
	Tenant     string
	Arrival    int64         // Unix milliseconds, by the clock of the leader that proposed the entry
	Window     int64         // milliseconds; samples older than the tenant's newest by more than this are refused
	MaxSeries  int           // limit of the tenant's recent series; 0 means no limit
	MaxTenants int           // limit of the group's tenants, for a tenant that is new; 0 means no limit
	Sender     sender.Sender // only the address and the agent are kept
	Pair       Pair
	Hash       uint64 // set for KindDeltas, to recognize a request that is sent again
	Results    bool   // the samples are results of rules, which have a store of their own; from format 6 on
	Form       Form
	Body       []byte // compressed with snappy; all rules have been applied

	// Offer is Body decoded, or nil. It is only in this process, and not in the entry's bytes.
	Offer *write.Offer
}

// Pair is the place of a request's sender in an HA pair. It is zero if the sender is in no pair.
type Pair struct {
	Cluster, Replica string
	Timeout          int64 // milliseconds without a request, after which the other replica is elected
}

// Form is the form of a body.
type Form uint8

// The forms: remote write 1.0 and 2.0.
const (
	RemoteWrite1 Form = 1 + iota
	RemoteWrite2
)

// Flags of a Request.
const (
	flagPair    = 1 // it has a Pair
	flagResults = 2 // it has results of rules
)

func (w *Request) append(b []byte, kind Kind) []byte {
	if w.Form < RemoteWrite1 || w.Form > RemoteWrite2 || len(w.Body) == 0 {
		panic(fmt.Sprintf("BUG: a request has form %d, a body of %d bytes", w.Form, len(w.Body)))
	}
	flags := byte(0)
	if w.Pair != (Pair{}) {
		flags = flagPair
	}
	if w.Results {
		flags |= flagResults
	}
	b = append(b, flags, byte(w.Form))
	b = appendName(b, w.Tenant)
	b = appendTime(b, w.Arrival)
	b = appendTime(b, w.Window)
	b = appendLimit(b, w.MaxSeries)
	b = appendLimit(b, w.MaxTenants)
	switch at := w.Sender.Addr.Addr(); {
	case !at.IsValid():
		b = append(b, 0)
	case at.Is4():
		ip := at.As4()
		b = append(append(b, 4), ip[:]...)
	default:
		ip := at.As16()
		b = append(append(b, 16), ip[:]...)
	}
	b = appendText(b, w.Sender.Agent, maxAgent)
	if flags&flagPair != 0 {
		b = appendText(b, w.Pair.Cluster, MaxSize)
		b = appendText(b, w.Pair.Replica, MaxSize)
		b = appendTime(b, w.Pair.Timeout)
	}
	if kind == KindDeltas {
		b = binary.LittleEndian.AppendUint64(b, w.Hash)
	}
	return append(b, w.Body...)
}

func (w *Request) parse(r *reader, kind Kind) error {
	flags := r.byte()
	if unknown := flags &^ (flagPair | flagResults); unknown != 0 {
		return fmt.Errorf("its request has the unknown flag %#02x: %w", unknown, ErrNewer)
	}
	if w.Form = Form(r.byte()); w.Form > RemoteWrite2 {
		return fmt.Errorf("its request has the unknown form %d: %w", w.Form, ErrNewer)
	}
	w.Results = flags&flagResults != 0
	w.Tenant = r.name()
	w.Arrival, w.Window = r.time(), r.time()
	w.MaxSeries, w.MaxTenants = r.limit(), r.limit()
	var at netip.Addr
	switch n := r.byte(); n {
	case 0:
	case 4:
		if ip := r.cut(4); ip != nil {
			at = netip.AddrFrom4([4]byte(ip))
		}
	case 16:
		if ip := r.cut(16); ip != nil {
			at = netip.AddrFrom16([16]byte(ip))
		}
	default:
		return errMalformed
	}
	w.Sender = sender.Sender{Addr: netip.AddrPortFrom(at, 0), Agent: r.text(maxAgent)}
	w.Pair = Pair{}
	if flags&flagPair != 0 {
		w.Pair = Pair{Cluster: r.text(MaxSize), Replica: r.text(MaxSize), Timeout: r.time()}
		r.bad = r.bad || w.Pair == Pair{}
	}
	if w.Hash = 0; kind == KindDeltas {
		w.Hash = r.uint64()
	}
	if w.Body = r.cut(len(r.b)); len(w.Body) == 0 || w.Form == 0 {
		return errMalformed
	}
	return nil
}
