package group

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

func (p *process) books(tenant string) ledger.Samples {
	return p.Ledger.(*ledger.Ledger).Books().Tenants[tenant].Samples
}

// The log admits as many tenants as its entries allow. Requests, deltas and windows of further tenants
// are refused, and their samples are in the books. A restart with a higher limit reads the log again,
// and admits the same tenants.
func TestTenantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s, func(o *Options) { o.MaxTenants = 2 })
		p.mustCount("a", "c", 1)
		if o, err := p.Write(t.Context(), request(t, "b", "r", time.Now(), 1)); err != nil || o.Written.Samples != 1 {
			t.Fatal(o, err)
		}
		o, err := p.Write(t.Context(), request(t, "x", "r", time.Now(), 1))
		if err != nil || o.Refused[outcome.TooManyTenants].Samples != 1 ||
			!strings.Contains(o.Text(), "store.max_tenants (2)") {
			t.Errorf("%+v, %v", o, err)
		}
		p.mustCount("y", "c", 1)
		if n := p.books("y").Refused["too_many_tenants"]; n != 1 {
			t.Errorf("%d samples of windows are refused, want 1", n)
		}
		fs := p.kill(crash)
		p = start(t, fs, s, func(o *Options) { o.MaxTenants = 3 })
		if n := p.TenantSeries("y"); n != 0 {
			t.Errorf("after a restart, the refused tenant has %d series, want 0", n)
		}
		p.mustCount("a", "c", 1)
		if o, err := p.Write(t.Context(), request(t, "x", "r", time.Now(), 1)); err != nil || o.Written.Samples != 1 {
			t.Errorf("an admitted tenant wrote %+v, error %v, want 1 sample", o, err)
		}
		p.mustCount("y", "c", 1)
		time.Sleep(20 * time.Second)
		s.check("a", "c", 2)
		if times, _ := s.values("y", "c"); len(times) > 0 {
			t.Error("samples of a refused tenant are stored")
		}
		p.terminate()
	})
}
