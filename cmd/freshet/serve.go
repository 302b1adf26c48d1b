package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/role/collector"
)

func newServeCommand() *cobra.Command {
	schema := conf.New("FRESHET", defaultConfig())
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server: DogStatsD sockets, aggregation, storage and the Prometheus API in
one process. Every setting is a key of the configuration file, a flag and an
environment variable: dogstatsd.udp, --dogstatsd-udp, FRESHET_DOGSTATSD_UDP.
Flags win over the environment, the environment over the file.`,
		Example: `  freshet serve
  freshet serve --config /etc/freshet.yaml
  freshet serve --dogstatsd-udp 0.0.0.0:8125 --http-listen 0.0.0.0:7125
  freshet serve --dogstatsd-unix ''              turn an input off`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := schema.Load(file, os.LookupEnv)
			if err != nil {
				return err
			}
			c.flags = map[string]string{}
			cmd.Flags().VisitAll(func(f *pflag.Flag) { c.flags[f.Name] = f.Value.String() })
			return serve(cmd.Context(), c.withPaths(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&file, "config", os.Getenv("FRESHET_CONFIG"), "configuration file (YAML) [$FRESHET_CONFIG]")
	schema.AddFlags(cmd.Flags())
	return cmd
}

func parseLevel(text string) (level slog.Level, err error) {
	err = level.UnmarshalText([]byte(text))
	return level, err
}

// serve runs the server until a signal, or until one of its parts fails.
func serve(ctx context.Context, c config, stdout, stderr io.Writer) error {
	level, _ := parseLevel(c.LogLevel) // validated
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	ctx, cancel := run.WithSignals(ctx)
	defer cancel()

	s, err := newServer(c, prometheus.NewRegistry(), logger)
	if err != nil {
		return errors.Join(err, s.close())
	}
	if err := s.announce(stdout); err != nil {
		return errors.Join(err, s.close())
	}
	err = run.Run(ctx, c.Drain, s.parts()...)
	if signal := (run.SignalError{}); errors.As(context.Cause(ctx), &signal) {
		logger.Info("stopped", "cause", signal)
	}
	return errors.Join(err, s.close())
}

// listening is what a started server tells programs: the file listening.json in
// the data directory, since ports may have been chosen by the kernel.
type listening struct {
	PID               int    `json:"pid"`
	HTTP              string `json:"http"`
	DogStatsDUDP      string `json:"dogstatsd_udp,omitempty"`
	DogStatsDUnixgram string `json:"dogstatsd_unixgram,omitempty"`
	DogStatsDUnix     string `json:"dogstatsd_unix,omitempty"`
}

// announce says what listens where, to people and to programs.
func (s *server) announce(out io.Writer) error {
	sockets := s.collector.Listening()
	for _, l := range sockets {
		for _, w := range l.Warnings {
			s.logger.Warn(w)
		}
	}
	l := listening{PID: os.Getpid(), HTTP: s.http[0].addr()}
	l.DogStatsDUDP = first(sockets, "udp").Address
	l.DogStatsDUnixgram = first(sockets, "unixgram").Address
	l.DogStatsDUnix = first(sockets, "unix").Address
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.config.DataDir, "listening.json"), append(text, '\n'), 0o640); err != nil {
		return fmt.Errorf("write what listens where: %w", err)
	}
	return s.greet(out, l, sockets)
}

// first is the first socket of a network, the zero value if there is none.
func first(sockets []collector.Listening, network string) collector.Listening {
	for _, l := range sockets {
		if l.Network == network {
			return l
		}
	}
	return collector.Listening{}
}

// greet prints what listens where and what to try next, ready to paste.
func (s *server) greet(out io.Writer, l listening, sockets []collector.Listening) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", thisBuild())
	for _, socket := range sockets {
		fmt.Fprintf(&b, "  DogStatsD  %-9s %s", socket.Network, socket.Address)
		if socket.Tenant != s.config.DogStatsD.Tenant {
			fmt.Fprintf(&b, "  (tenant %s)", socket.Tenant)
		}
		b.WriteByte('\n')
	}
	for i, h := range s.http {
		fmt.Fprintf(&b, "  HTTP       http://%s", h.addr())
		if i == 0 {
			fmt.Fprintf(&b, "  (a Prometheus data source for Grafana)\n")
		} else {
			fmt.Fprintf(&b, "  (tenant %s)\n", h.tenant)
		}
	}
	fmt.Fprintf(&b, "  data       %s\n", s.config.DataDir)
	query := os.Args[0] + " query"
	if l.HTTP != defaultHTTP {
		query += " --server http://" + l.HTTP
	}
	fmt.Fprintf(&b, "\nTry:\n")
	if host, port, ok := strings.Cut(l.DogStatsDUDP, ":"); ok && !strings.Contains(port, ":") && first(sockets, "udp").Tenant == s.config.HTTP.Tenant {
		fmt.Fprintf(&b, "  echo 'page_views:1|c|#page:home' > /dev/udp/%s/%s      # in bash\n", host, port)
	}
	fmt.Fprintf(&b, "  %s page_views\n", query)
	fmt.Fprintf(&b, "  curl 'http://%s/api/v1/query?query=page_views'\n\n", l.HTTP)
	_, err := io.WriteString(out, b.String())
	return err
}
