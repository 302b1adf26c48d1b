package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/handover"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

const serveName = "serve"

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   serveName,
		Short: "Run the server",
		Long: `Runs the server: DogStatsD sockets, aggregation, storage and the Prometheus API in
one process. Every setting is a key of the configuration file, a flag and an
environment variable: dogstatsd.udp, --dogstatsd-udp, FRESHET_DOGSTATSD_UDP.
Flags win over the environment, the environment over the file.`,
		Example: `  freshet serve
  freshet serve --config /etc/freshet.yaml
  freshet serve --dogstatsd-udp 0.0.0.0:8125 --http-listen 0.0.0.0:7125
  freshet serve --dogstatsd-unix ''              turn an input off`,
		Args: command.NoWords,
	}
	from := settings.NewSource(cmd.Flags())
	check := cmd.Flags().Bool(checkFlag, false, "load the configuration as this command would, say what is wrong with it, and end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := from.Load()
		if err == nil {
			err = checkFiles(c)
		}
		if err != nil || *check {
			return err
		}
		return serve(cmd.Context(), c, from, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// serve runs the server until a signal, or until one of its parts fails. The
// source of c can be read again.
func serve(ctx context.Context, c settings.Config, from *settings.Source, stdout, stderr io.Writer) (err error) {
	logger := newLog(stderr, c.Level())
	defer func() {
		closed := logger.close()
		if errors.Is(closed, context.DeadlineExceeded) && err != nil {
			err = command.ExitError{Code: command.Failure} // whoever reads standard error hangs: to say more would wait for him
		} else if !errors.Is(closed, context.DeadlineExceeded) {
			err = errors.Join(err, closed)
		}
	}()
	signaled, cancel := run.WithSignals(ctx)
	defer cancel()
	ctx, stop := context.WithCancelCause(signaled)
	defer stop(nil)

	go limitGarbage(ctx, c)
	s, err := newServer(c, from, prometheus.NewRegistry(), logger)
	if err != nil {
		return errors.Join(err, s.close())
	}
	s.restarter.begin(signaled, stop)
	err = run.Run(ctx, c.Drain, s.parts(func() error { return s.announce(stdout) })...)
	if signal := (run.SignalError{}); errors.As(context.Cause(ctx), &signal) {
		logger.Info("stopped", "cause", signal)
	}
	return errors.Join(err, s.close())
}

// announce says what listens where, to people and to programs, and that all is open.
func (s *server) announce(out io.Writer) error {
	for _, w := range s.socketWarnings() {
		s.logger.Warn(w)
	}
	if err := s.listeningTold.first(s.writeListening); err != nil {
		return err
	}
	if err := handover.Notify(handover.Ready); err != nil {
		s.logger.Warn("systemd does not know that everything is open", "error", err)
	}
	s.restarter.ready()
	return s.greet(out)
}

// socketWarnings say where the kernel's settings will cost packets.
func (s *server) socketWarnings() (all []string) {
	for _, l := range s.collector.Listening() {
		all = append(all, l.Warnings...)
	}
	return all
}

func (s *server) listening() answer.Listening {
	sockets := s.collector.Listening()
	return answer.Listening{
		PID: os.Getpid(), Operator: s.operatorPath(), HTTP: s.http[0].addr(), OTLPGRPC: s.otlp.addr(),
		DogStatsDUDP:      first(sockets, "udp").Address,
		DogStatsDUnixgram: absolute(first(sockets, "unixgram").Address),
		DogStatsDUnix:     absolute(first(sockets, "unix").Address),
	}
}

// absolute is a path from the root on, and empty if it is.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path // the working directory is gone
}

// A listeningTold lets one goroutine at a time write listening.json, and nobody before
// the server has announced itself: programs take the file for a server that is open.
type listeningTold struct {
	mu        sync.Mutex
	announced bool
}

// first writes for the announcement.
func (t *listeningTold) first(write func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = true
	return write()
}

// again writes after a reload. Before the announcement there is nothing to correct.
func (t *listeningTold) again(write func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.announced {
		return nil
	}
	return write()
}

// writeListening writes listening.json. listeningTold calls it.
func (s *server) writeListening() error {
	text, err := json.MarshalIndent(s.listening(), "", "  ")
	if err != nil {
		return err
	}
	if err := s.replace(answer.ListeningFile, append(text, '\n')); err != nil {
		return fmt.Errorf("write what listens where: %w", err)
	}
	return nil
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
