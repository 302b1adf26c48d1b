package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/sender"
)

func requester(tenant, remote, agent string) Requester {
	return Requester{Tenant: tenant, Input: "remote_write", Sender: sender.Of(remote, agent)}
}

// A program has one row, however many connections it has. Programs, tenants and inputs have rows of
// their own.
func TestRequests(t *testing.T) {
	table := NewRequests()
	for second := int64(100); second < 120; second++ {
		for port := range 100 {
			table.Add(second, requester("a", fmt.Sprint("10.0.0.1:", 1000+port), "small/1"), 300, 10)
		}
		table.Add(second, requester("a", "10.0.0.1:9", "Prometheus/3"), 50_000, 2000)
		table.Add(second, requester("b", "10.0.0.1:9", "Prometheus/3"), 25_000, 1000)
	}
	got, rest := table.Busiest(120, 2)
	want := []RequestsRow{
		{requester("a", "10.0.0.1:0", "small/1"), Amount{Count: 1000, Bytes: 300_000, Samples: 10_000}},
		{requester("a", "10.0.0.1:0", "Prometheus/3"), Amount{Count: 10, Bytes: 500_000, Samples: 20_000}},
	}
	if !slices.Equal(got, want) || rest != (Rest{1, Amount{Count: 10, Bytes: 250_000, Samples: 10_000}}) {
		t.Errorf("got %v and %v", got, rest)
	}
	if got, rest := table.Busiest(140, 2); len(got) != 0 || rest != (Rest{}) {
		t.Errorf("after 10 s without requests: %v and %v, want nothing", got, rest)
	}
}

// Programs of one address have rows of their own if their tokens have names, which stand before the address.
func TestRequestsByToken(t *testing.T) {
	table := NewRequests()
	for i, token := range []string{"web", "shop", ""} {
		r := requester("a", "10.0.0.1:9", "otel/1")
		r.Token = token
		table.Add(100, r, 1, 10-i)
	}
	got, _ := table.Busiest(101, 10)
	names := ""
	for _, r := range got {
		names += r.Requester.String() + "; "
	}
	if names != "10.0.0.1 (otel/1); shop, 10.0.0.1 (otel/1); web, 10.0.0.1 (otel/1); " {
		t.Errorf("the requesters are %s", names)
	}
}

// Memory is bounded, whatever user agents the requests name. Each request is counted once.
func TestRequestsAreBounded(t *testing.T) {
	table := NewRequests()
	for i := range maxRequests + 100 {
		table.Add(100, requester("a", "10.0.0.1:1", fmt.Sprint(i, strings.Repeat("x", 1000))), 1, 1)
	}
	got, rest := table.Busiest(101, 10)
	if len(table.rows.byKey) != maxRequests || len(got[0].Agent) > 100 || rest.Count+10 != maxRequests+100 {
		t.Errorf("%d rows, want %d; an agent of %d bytes, want at most 100; %d other requests, want %d",
			len(table.rows.byKey), maxRequests, len(got[0].Agent), rest.Count, maxRequests+90)
	}
	table.Add(100+Span+1, requester("b", "10.0.0.2:1", "new"), 1, 1)
	if got, _ := table.Busiest(102+Span, 10); len(got) != 1 || got[0].Tenant != "b" {
		t.Errorf("after a new sender, the rows are %v, want only its own", got)
	}
}

func TestRequestsAllocateNothing(t *testing.T) {
	table, r := NewRequests(), requester("a", "10.0.0.1:1", "Prometheus/3")
	table.Add(100, r, 1, 1)
	if n := testing.AllocsPerRun(100, func() { table.Add(100, r, 1, 1) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
