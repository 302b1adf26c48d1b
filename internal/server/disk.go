package server

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
)

const (
	// lookEvery is how often the free space is measured. A disk that takes 1 GB a second loses as much before the
	// cluster stops.
	lookEvery = time.Second

	// countEvery is how often the files of the stores are counted, and countRest how many times as long as a count
	// took is the least pause after it: counting takes at most 0.2 % of a processor.
	countEvery = 10 * time.Second
	countRest  = 500

	// maxToldTenants bounds the tenants whose bytes the status has. The metric has all.
	maxToldTenants = 100
)

// watchDisk measures the free space of the data directory, and what each tenant takes of it, until ctx is done.
func (s *server) watchDisk(ctx context.Context) error {
	f := promauto.With(s.registry)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "freshet_disk_" + name, Help: help})
	}
	free := gauge("free_bytes", "Free bytes of the disk with the data directory. Falling to 0 within days: take a larger "+
		"disk, or shorten store.retention.")
	size := gauge("size_bytes", "Size of the disk with the data directory.")
	least := gauge("min_free_bytes", "cluster.min_free of a node, else 0. While fewer bytes are free on two of three "+
		"nodes, the cluster takes no more data.")
	tenants := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_tenant_disk_bytes",
		Help: "Bytes that the stores of a tenant take on the disk."}, []string{"tenant"})
	var next time.Time
	for {
		if d := s.measureDisk(); d != nil {
			free.Set(float64(d.Free))
			size.Set(float64(d.Size))
			least.Set(float64(d.MinFree))
		}
		if begun := time.Now(); !begun.Before(next) {
			s.countTenants(tenants)
			next = time.Now().Add(max(countEvery, countRest*time.Since(begun)))
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// measureDisk notes the space of the fullest file system that the data directory uses: its directories may be mounts.
func (s *server) measureDisk() (found *peer.Disk) {
	for _, dir := range []string{".", "tsdb", answer.GroupPath} {
		space, err := files.SpaceOf(s.path(dir))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			s.logger.Warn("the free space of the disk is not known", "error", err)
			continue
		}
		if found == nil || space.Free < found.Free {
			found = &peer.Disk{Free: space.Free, Size: space.Size}
		}
	}
	if found == nil {
		return nil
	}
	if s.config.Cluster.Node != "" {
		found.MinFree = uint64(s.config.Cluster.MinFree)
	}
	s.disk.Store(found)
	return found
}

// short reports whether the disk of this node is nearly full.
func (s *server) short() bool {
	d := s.disk.Load()
	return d != nil && d.Free < d.MinFree
}

// countTenants counts what the stores of each tenant take.
func (s *server) countTenants(metric *prometheus.GaugeVec) {
	dirs, err := os.ReadDir(s.path("tsdb"))
	if err != nil {
		return // there are no stores yet
	}
	metric.Reset()
	all := make([]answer.ClusterTenant, 0, len(dirs))
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		bytes, err := files.DiskBytes(s.path("tsdb", d.Name()))
		if err != nil {
			s.logger.Warn("the bytes of a tenant's stores cannot be counted", "tenant", d.Name(), "error", err)
			continue
		}
		metric.WithLabelValues(d.Name()).Set(float64(bytes))
		all = append(all, answer.ClusterTenant{Tenant: d.Name(), Bytes: bytes})
	}
	slices.SortFunc(all, func(a, b answer.ClusterTenant) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tenant, b.Tenant))
	})
	all = all[:min(len(all), maxToldTenants)]
	s.tenantBytes.Store(&all)
}

// toldDisk returns a node's disk as the status has it.
func toldDisk(d *peer.Disk) *answer.ClusterDisk {
	if d == nil {
		return nil
	}
	return &answer.ClusterDisk{FreeBytes: d.Free, SizeBytes: d.Size, MinFreeBytes: d.MinFree, Short: d.Free < d.MinFree}
}

// toldTenants returns what the stores of each tenant take on this node.
func (s *server) toldTenants() []answer.ClusterTenant {
	if all := s.tenantBytes.Load(); all != nil {
		return *all
	}
	return nil
}
