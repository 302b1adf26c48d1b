package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/handover"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/settings"
)

// restarter replaces the running program with the program that is now at the same path. The process and
// its sockets stay the same.
type restarter struct {
	asked    chan os.Signal
	signaled context.Context         // ends when the process is asked to stop; begin sets it
	stop     context.CancelCauseFunc // ends the parts; begin sets it
	plan     *plan                   // nil until the restart is decided
	last     answer.Restart          // the report of the previous image; empty after an ordinary start
	begun    time.Time               // when this image began to read sockets
	ended    atomic.Int64            // Unix ns, when this image stopped reading
}

// plan holds the program to run next, and the sockets for it.
type plan struct {
	path    string
	sockets []handover.Socket
}

const (
	checkFlag  = "check" // a flag of freshet serve
	checkTime  = 30 * time.Second
	checkDelay = time.Second // how long to wait for the rest of the output of a program that has ended
	probeBytes = 1 << 20     // far more than an image writes before it is ready, not counting windows
)

var errRestart = errors.New("restart in place")

func newRestarter() *restarter {
	r := &restarter{asked: make(chan os.Signal, 1)}
	signal.Notify(r.asked, answer.RestartSignal) // stays in effect as long as the process lives
	return r
}

// openRestarted reads the previous image's report about the restart. There is none after an ordinary
// start.
func (s *server) openRestarted() error {
	if !s.inherited.Again() {
		return nil
	}
	var last answer.Restart
	err := files.ReadJSON(s.path(answer.RestartFile), &last)
	if err == nil && last.PID == os.Getpid() && last.State == answer.RestartOpening {
		s.restarter.last = last
		if last.Proxied != "" {
			s.proxied.Store(&last.Proxied)
		}
	}
	return nil
}

// begin is called when the parts start. It stores `signaled`, and the function that stops the parts.
func (r *restarter) begin(signaled context.Context, stop context.CancelCauseFunc) {
	r.signaled, r.stop, r.begun = signaled, stop, time.Now()
}

func (r *restarter) notReading() { r.ended.Store(time.Now().UnixNano()) }

// watchRestarts checks at each SIGUSR2 whether a restart can succeed, and then begins the restart. A
// restart is the last action of an image; the next image handles later signals.
func (s *server) watchRestarts(ctx context.Context) error {
	for {
		select {
		case <-s.restarter.asked:
			s.tellRestart(answer.Restart{State: answer.RestartChecking})
			if err := s.prepareRestart(ctx); err != nil {
				s.logger.Error("not restarted; nothing has changed", "error", err)
				s.tellRestart(answer.Restart{State: answer.RestartRefused, Why: err.Error()})
				continue
			}
			s.tellRestart(answer.Restart{State: answer.RestartStopping})
			s.restarter.stop(errRestart)
			<-ctx.Done()
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// prepareRestart does all steps of a restart that can fail.
func (s *server) prepareRestart(ctx context.Context) error {
	if err := s.opening.wait(ctx); err != nil {
		return err
	}
	// Use the path by which this program was started, not the path of the running file: an upgrade
	// may have replaced the file, or changed a link to it.
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return fmt.Errorf("find the program to restart: %w", err)
	}
	if err := checkProgram(ctx, path, os.Args[1:]); err != nil {
		return err
	}
	if s.stores != nil {
		s.stores.SaveHeadsNow(ctx) // the next image opens them
	}
	s.reloader.mu.Lock() // blocks reloads until leave has listed the sockets, since a reload could add some
	defer s.reloader.mu.Unlock()
	if err := s.checkRoom(); err != nil {
		return err
	}
	if err := s.checkAddresses(); err != nil {
		return err
	}
	sockets, err := s.leave()
	if err != nil {
		return err
	}
	s.restarter.plan = &plan{path, sockets}
	return nil
}

// checkProgram runs a program so that it only loads its configuration and exits. It returns the
// program's error.
func checkProgram(ctx context.Context, path string, args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	args = append(args[:len(args):len(args)], "--"+checkFlag)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET=") // systemd must not mistake the check for the service
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// A timeout also kills the program's children, so that they cannot block this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = checkDelay
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// checkRoom returns an error if the disk has no room for what the next image must write.
func (s *server) checkRoom() error {
	const probe = "restart.probe"
	dir, err := files.Open(s.config.DataDir)
	if err != nil {
		return err
	}
	f, err := dir.Create(probe)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), dir.Remove(probe))
}

// checkAddresses tries to bind the configuration's new addresses: a reload does not bind them, and
// the next image must. If this image cannot read the configuration, the configuration may be
// written for the new program, which has already checked it. Then checkAddresses tries no address.
func (s *server) checkAddresses() error {
	next, err := s.reloader.source.Load()
	if err != nil {
		return nil
	}
	open := map[string]bool{}
	for _, h := range s.http {
		open[h.address] = true
	}
	for _, l := range next.HTTP.All() {
		if open[l.Listen] {
			continue
		}
		listener, err := net.Listen("tcp", l.Listen)
		if err != nil {
			return httpError(l.Listen, err)
		}
		_ = listener.Close()
	}
	address := next.Distributor.OTLP.GRPCListen
	if address == "" || !next.Roles().Has(settings.RoleDistributor) || s.otlp != nil && s.otlp.address == address {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return otlpError(address, err)
	}
	return listener.Close()
}

// leave returns the sockets as files. From then on, stopping the parts leaves the sockets open for the
// next image.
func (s *server) leave() ([]handover.Socket, error) {
	left, err := s.collector.Leave()
	var all []handover.Socket
	for _, l := range left {
		all = append(all, handover.Socket{File: l.File, Network: l.Network, Name: l.Address})
	}
	for _, h := range s.http {
		file, fileErr := h.file()
		if fileErr != nil {
			err = errors.Join(err, fileErr)
			continue
		}
		all = append(all, handover.Socket{File: file, Network: "tcp", Name: h.address})
	}
	if s.operatorSocket != nil {
		file, fileErr := s.operatorSocket.file()
		if fileErr == nil {
			all = append(all, handover.Socket{File: file, Network: "unix", Name: s.operatorSocket.address})
		}
		err = errors.Join(err, fileErr)
	}
	if s.otlp != nil {
		file, fileErr := s.otlp.file()
		if fileErr == nil {
			all = append(all, handover.Socket{File: file, Network: "tcp", Name: s.otlp.address})
		}
		err = errors.Join(err, fileErr)
	}
	for i := range all {
		var sharedErr error
		all[i].Shared, sharedErr = s.inherited.Shared(all[i].File)
		err = errors.Join(err, sharedErr)
	}
	return all, err
}

// replaceImage replaces the program. It runs after the collector has stopped and before other parts
// stop: then all windows are in the journal, and new datagrams wait in the sockets' buffers. See
// docs/decisions/restart.md.
func (s *server) replaceImage(ctx context.Context) error {
	<-ctx.Done()
	if s.restarter.plan == nil || s.restarter.signaled.Err() != nil { // a stop takes precedence over a restart
		return nil
	}
	if s.outgoing != nil {
		s.outgoing.Drain()
	}
	if s.aggregator != nil {
		s.handOver()
		s.aggregator.Halt()
	}
	s.writeLedger(true)
	state := answer.Restart{State: answer.RestartOpening, StoppedReading: s.restarter.ended.Load()}
	if header := s.proxied.Load(); header != nil {
		state.Proxied = *header
	}
	s.tellRestart(state)
	// After exec, a handled signal has its default action, which ends the process, but an ignored
	// signal stays ignored. No reload is lost, since the next image reads the newest configuration
	// anyway.
	signal.Ignore(answer.ReloadSignal, answer.RestartSignal)
	_ = s.log.flush() // writes this image's last lines; if the output hangs, they are lost
	return handover.Exec(s.restarter.plan.path, os.Args, s.restarter.plan.sockets)
}

// tellRestarted reports to the log, and to the command freshet restart, that this image is ready.
func (s *server) tellRestarted() {
	if s.restarter.last.State == "" {
		return
	}
	gap := s.restarter.begun.Sub(time.Unix(0, s.restarter.last.StoppedReading))
	after := time.Since(time.Unix(0, s.restarter.last.StoppedReading))
	s.logger.Info("restarted in place",
		"unread_for", gap.Round(time.Millisecond), "ready_after", after.Round(time.Millisecond))
	s.tellRestart(answer.Restart{State: answer.RestartReady, Gap: gap.Seconds(), Build: build.This().String()})
}

// tellRestart writes restart.json.
func (s *server) tellRestart(state answer.Restart) {
	state.PID, state.At = os.Getpid(), time.Now().UnixMilli()
	text, err := json.Marshal(state)
	if err == nil {
		err = s.replace(answer.RestartFile, append(text, '\n'))
	}
	if err != nil {
		s.logger.Warn("the state of the restart cannot be written, so freshet restart cannot show it",
			"state", state.State, "error", err)
	}
}
