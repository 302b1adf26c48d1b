package ingester

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

type nullStore struct{ *store }

func (nullStore) WriteRequests(context.Context, string, *write.State, []*write.Request) error {
	return nil
}

// What a request costs besides its decoding and its commit. Bound: 2 us and 0 allocs/op.
func BenchmarkPush(b *testing.B) {
	g := New(settings.Ingester{Queue: 1000}, nullStore{}, prometheus.NewRegistry())
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	r := write.Request{Tenant: "a", Request: new(remotewrite.Request)}
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Push(b.Context(), &r); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	<-done
}
