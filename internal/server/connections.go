package server

import (
	"fmt"

	"github.com/freshet-io/freshet/internal/adapter/connections"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// openConnections divides the process's file descriptors between data files and connections.
func (s *server) openConnections() (err error) {
	if s.shares, err = connections.Share(); err != nil {
		return err
	}
	most, why := s.config.HTTP.MaxConnections, "http.max_connections"
	switch {
	case most > s.shares.MostTCP():
		return conf.Mistake(fmt.Errorf("http.max_connections = %d: the process may open %d files, of which %d are for "+
			"connections; raise LimitNOFILE= or ulimit -n to %d, or set http.max_connections to 0",
			most, s.shares.Limit, s.shares.MostTCP(), s.shares.For(most)))
	case most == 0:
		most, why = s.shares.TCP, fmt.Sprintf("three eighths of the %d files that the process may open; raise "+
			"LimitNOFILE= or ulimit -n", s.shares.Limit)
	}
	data := int(s.shares.Limit) - s.shares.TCP - s.shares.Streams
	if s.config.Cluster.Node != "" {
		data -= s.shares.Peers
	}
	if s.shares.Few() {
		s.logger.Warn("the limit of open files is low; raise LimitNOFILE= or ulimit -n", "files", s.shares.Limit,
			"http_connections", most, "stream_connections", s.shares.Streams,
			"left_for_data", data)
	}
	s.bound = connections.New(connections.Options{Most: most, Why: why, Registry: s.registry, Logger: s.logger})
	return nil
}
