package member

import (
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Measures what each member spends on decoding a request of 2,000 samples: into the memory of an
// earlier request and, for comparison, into memory of its own.
func BenchmarkDecode(b *testing.B) {
	var in write.Incoming
	var w remotewrite.Builder
	w.Begin(&in.Request, nil)
	for i := range 2000 {
		w.Series()
		w.Label("__name__", "http_requests_total")
		w.Label("cluster", "eu-west-1")
		w.Label("host", fmt.Sprint("web-", i%50))
		w.Label("job", "api")
		w.Label("path", fmt.Sprint("/some/path/", i))
		w.Label("status", "200")
		w.Sample(remotewrite.Sample{Time: base, Value: float64(i)})
	}
	w.Finish()
	bodies, _ := new(rewrite.Rewriter).Rewrite(&in, &labelrules.Rules{})
	for name, release := range map[string]bool{"released": true, "own": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := Request{entry: entry.Request{Tenant: "a", Form: bodies[0].Form, Body: bodies[0].Bytes}}
				if err := r.Decode(); err != nil {
					b.Fatal(err)
				}
				if release {
					r.Release()
				}
			}
		})
	}
}
