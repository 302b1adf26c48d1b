package top

import (
	"cmp"
	"strings"
	"sync"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// maxRequests bounds the requesters of all tenants: 4,096 x 600 bytes = 2.5 MB, if all sent
// within Span seconds.
const maxRequests = 4096

// Requests counts remote write and OTLP requests by requester. Requests are few and each has many
// samples, so counting them all the time is cheap. It is safe for concurrent use.
type Requests struct {
	mu     sync.Mutex
	rows   rows[Requester]
	others recent
}

// Requester is a sender of requests, with their input and tenant.
type Requester struct {
	Tenant string
	Input  string // as the stages call it: remote_write or otlp
	Token  string // name of its token; empty if it has none
	sender.Sender
}

// String returns the requester as text for people, such as: web, 10.0.0.1 (Prometheus/3.5.0).
func (r Requester) String() string {
	if r.Token == "" {
		return r.Sender.String()
	}
	return r.Token + ", " + r.Sender.String()
}

// RequestsRow is what one Requester sent.
type RequestsRow struct {
	Requester
	Amount
}

// NewRequests returns an empty table.
func NewRequests() *Requests { return &Requests{rows: newRows[Requester](maxRequests)} }

// Add counts a request in a second. It does not keep the memory of r.
func (t *Requests) Add(second int64, r Requester, bytes, samples int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows.byKey[r] // allocates nothing
	if row == nil {
		r.Tenant, r.Sender = strings.Clone(r.Tenant), r.Sender.Clone()
		row = t.rows.at(second, r)
	}
	if row == nil {
		row = &t.others
	}
	row.add(second, Amount{Count: 1, Bytes: uint64(bytes), Samples: uint64(samples)})
}

// Busiest returns the requesters with the most requests in the Span seconds before `second`, and
// the sum of the others.
func (t *Requests) Busiest(second int64, limit int) ([]RequestsRow, Rest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []RequestsRow
	for key, row := range t.rows.byKey {
		if a := row.sum(second-Span, second); a.Count > 0 {
			all = append(all, RequestsRow{key, a})
		}
	}
	kept, rest := busiest(all, limit, func(r RequestsRow) Amount { return r.Amount }, func(a, b RequestsRow) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Input, b.Input), strings.Compare(a.Token, b.Token),
			a.Addr.Compare(b.Addr), strings.Compare(a.Agent, b.Agent))
	})
	rest.add(t.others.sum(second-Span, second))
	return kept, rest
}
