package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/kubelet"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

// openCollector binds the DogStatsD sockets; runCollector reads from them.
func (s *server) openCollector() error {
	constant, err := s.config.ConstantLabels()
	if err != nil {
		return err
	}
	mapper, err := mapping.New(s.config.Mapping, constant)
	if err != nil {
		return err
	}
	producer, err := s.producer()
	if err != nil {
		return err
	}
	s.mapper.Store(mapper)
	var mark *probe.Mark
	if s.has(settings.RoleProber) {
		mark = probe.NewMark(producer)
	}
	s.limiter = limit.New(s.config.Limits, s.config.DogStatsD.IdleContexts, s.config.Aggregator.UpDownTTL)
	config := s.config.DogStatsD
	if !s.has(settings.RoleCollector) {
		config.UDP, config.Unixgram, config.Unix, config.Listeners = "", "", "", nil
	}
	pods, err := s.openPods()
	if err != nil {
		return err
	}
	s.collector, err = collector.New(collector.Options{
		Config: config, Mapper: mapper, Limiter: s.limiter, Pods: pods,
		Catalogue: s.catalogue, CatalogueFile: s.catalogueFile, Ledger: s.ledger, Watch: s.watch,
		Aggregator: &s.opening, Events: &s.opening, Producer: producer, Shared: s.inGroup(),
		Host: constant.Get("host"), Probe: mark,
		Now: time.Now, Registry: s.registry, Logger: s.logger,
		Inherited: s.inherited.dogstatsd, Connections: s.shares.Streams,
	})
	return err
}

// openPods makes the source of pods, if the configuration has one.
func (s *server) openPods() (collector.Pods, error) {
	c := s.config.Kubelet
	if c.URL == "" || !s.has(settings.RoleCollector) {
		return nil, nil
	}
	var err error
	s.pods, err = kubelet.New(kubelet.Options{
		URL: c.Target(), TokenFile: c.TokenFile, CAFile: c.CAFile, Verify: c.Verify, CgroupDir: c.CgroupDir,
		Renew: func() { s.collector.Renew() }, Now: time.Now, Registry: s.registry, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	s.pods.Begin()
	return s.pods, nil
}

func (s *server) runPods(ctx context.Context) error { return s.pods.Run(ctx) }

// producer returns the number by which aggregators know this collector. The number survives
// restarts, so that a gauge merged from several hosts counts this host only once.
func (s *server) producer() (uint64, error) {
	path := s.path("sender")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var id [8]byte
		if _, err := rand.Read(id[:]); err != nil {
			return 0, err
		}
		text = []byte(hex.EncodeToString(id[:]) + "\n")
		err = s.writeOnce("sender", text)
	}
	if err != nil {
		return 0, fmt.Errorf("identity of this collector: %w", err)
	}
	id, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(id) != 8 {
		return 0, fmt.Errorf("identity of this collector: %s holds %.40q, not 16 hexadecimal digits; "+
			"remove the file to get a new one", path, text)
	}
	return binary.BigEndian.Uint64(id), nil
}

// mayRead returns a channel that is closed when the sockets may be read, or nil if they may be read at
// once. If systemd holds the sockets, reading waits until the start has succeeded, and datagrams wait
// in the sockets. Otherwise each failed start would lose the datagrams that it had read.
func (s *server) mayRead() <-chan struct{} {
	if len(s.inherited.shared) > 0 && !s.inherited.Again() {
		return s.opening.opened
	}
	return nil
}
