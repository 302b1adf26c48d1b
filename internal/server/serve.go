package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/settings"
)

// CommandName is the name of the command that runs a server.
const CommandName = "serve"

// NewCommand returns the command serve.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   CommandName,
		Short: "Run the server",
		Long: `Runs DogStatsD sockets, aggregation, storage and the Prometheus API in one process.
Every setting is a key of the configuration file, a flag and an environment variable:
dogstatsd.udp, --dogstatsd-udp, FRESHET_DOGSTATSD_UDP. Flags override the environment,
and the environment overrides the file.`,
		Example: `  freshet serve
  freshet serve --config /etc/freshet.yaml
  freshet serve --dogstatsd-udp 0.0.0.0:8125 --http-listen 0.0.0.0:7125
  freshet serve --dogstatsd-unix ''              turn an input off`,
		Args: command.NoWords,
	}
	from := settings.NewSource(cmd.Flags())
	check := cmd.Flags().Bool(checkFlag, false, "load the configuration as the server would, print its problems, and exit")
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

// serve runs the server until a signal, or until one of its parts fails. `from` is where a reload reads
// the configuration again.
func serve(ctx context.Context, c settings.Config, from *settings.Source, stdout, stderr io.Writer) (err error) {
	logger := newLog(stderr, c.Level())
	defer func() {
		closed := logger.close()
		if errors.Is(closed, context.DeadlineExceeded) && err != nil {
			err = command.ExitError{Code: command.Failure} // standard error is blocked, so an error message would wait, too
		} else if !errors.Is(closed, context.DeadlineExceeded) {
			err = errors.Join(err, closed)
		}
	}()
	var retiring atomic.Pointer[retirement]
	signaled, cancel := run.WithSignalsUnless(ctx, func() bool { r := retiring.Load(); return r != nil && r.hurry() })
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	s, err := newServer(c, from, prometheus.NewRegistry(), logger)
	if err != nil {
		return errors.Join(files.ExplainDenied(c.DataDir, err), s.close())
	}
	retiring.Store(&s.retirement)
	defer context.AfterFunc(signaled, func() {
		s.retire(ctx)
		stop(context.Cause(signaled))
	})()
	s.restarter.begin(signaled, stop)
	err = run.Run(ctx, c.Drain, s.parts(func() error { return s.announce(stdout) })...)
	if signal := (run.SignalError{}); errors.As(context.Cause(ctx), &signal) {
		logger.Info("stopped", "cause", signal)
	}
	return errors.Join(files.ExplainDenied(c.DataDir, err), s.close())
}

// retire makes this process unready at once, lets another node lead, and then waits for http.shutdown_delay. A process
// that has not been ready has no clients, and its roles may not be built yet. It waits no longer than ctx.
func (s *server) retire(ctx context.Context) {
	if !s.ready.Load() {
		return
	}
	delay := s.config.HTTP.ShutdownDelay
	s.retirement.waiting.Store(delay > 0)
	s.retirement.begun.Store(true)
	s.handOver()
	if delay > 0 {
		s.logger.Info("stopping: not ready any more, and still answering; another signal ends the wait", "for", delay)
		s.retirement.wait(ctx, delay, s.handOver)
	}
}

// checkFiles reads the files that the configuration names, so that a server neither starts nor
// restarts with a broken file.
func checkFiles(c settings.Config) error {
	var errs []error
	for i, l := range c.HTTP.All() {
		if l.WebConfig == "" {
			continue
		}
		key := "http.web_config"
		if i > 0 {
			key = fmt.Sprintf("http.listeners[%d].web_config", i-1)
		}
		read, err := readWebConfig(l.WebConfig)
		if err != nil {
			errs = append(errs, conf.Mistake(
				fmt.Errorf("%s: %w; fix the file, or leave the key empty for plain HTTP", key, err)))
		} else if len(read.Users) > 0 && (c.HTTP.TenantsFile != "" || c.HTTP.OperatorsFile != "") {
			errs = append(errs, conf.Mistake(fmt.Errorf("%s: %s has basic_auth_users, and a request cannot carry their "+
				"password and a token of http.tenants_file or http.operators_file in one header; keep one of the two",
				key, l.WebConfig)))
		}
	}
	if err := forwarder.CheckFiles(c.Forward); err != nil {
		errs = append(errs, conf.Mistake(err))
	}
	_, err := accessOf(c)
	_, operatorsErr := operatorsOf(c)
	_, rulesErr := readRules(c)
	return errors.Join(append(errs, err, operatorsErr, rulesErr)...)
}
