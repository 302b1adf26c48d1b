package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// receiver is the server that is measured.
type receiver struct {
	server apiclient.Server
	role   string // empty for a server that already runs

	// These fields are only set for a server that bench started.
	dir    string // removed at the end, with its contents
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// startLimit is how long a receiver with an empty directory may take to start.
const startLimit = time.Minute

func startReceiver(ctx context.Context, role string, pin bool, flags []string) (*receiver, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a receiver: %w", err)
	}
	dir, err := os.MkdirTemp("", "freshet-bench-")
	if err != nil {
		return nil, fmt.Errorf("start a receiver: %w", err)
	}
	r := &receiver{role: role, dir: dir, exited: make(chan struct{})}
	log, err := os.Create(r.path("log"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a receiver: %w", err), os.RemoveAll(dir))
	}
	defer log.Close()
	r.cmd = exec.Command(program, append([]string{"serve", "--role", role, "--data-dir", r.path("data"),
		"--http-listen", "127.0.0.1:0", "--distributor-otlp-grpc-listen", "", "--dogstatsd-udp", "127.0.0.1:0",
		"--dogstatsd-unixgram", r.path("dgram.sock"), "--dogstatsd-unix", "",
		"--self-probe=false", "--self-metrics=false"}, flags...)...)
	r.cmd.Env = receiverEnvironment(os.Environ(), pin)
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // an interrupt at the terminal goes only to bench, which then stops the receiver
		Pdeathsig: syscall.SIGKILL, // the receiver must not outlive bench
	}
	if err := r.start(pin); err != nil {
		return nil, errors.Join(fmt.Errorf("start a receiver: %w", err), os.RemoveAll(dir))
	}
	go func() {
		_ = r.cmd.Wait() // ProcessState says how the receiver ended
		close(r.exited)
	}()
	if err := r.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *receiver) path(elements ...string) string {
	return filepath.Join(append([]string{r.dir}, elements...)...)
}

// said returns what the receiver wrote to standard error.
func (r *receiver) said() string {
	text, err := os.ReadFile(r.path("log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// warnings returns the receiver's warnings about its sockets of one network: which settings of the
// kernel will cost packets, and how to fix them.
func (r *receiver) warnings(network string) (all []string) {
	if r.cmd == nil {
		return nil
	}
	for line := range strings.Lines(r.said()) {
		if _, warning, ok := strings.Cut(line, `level=WARN msg="`+network+" "); ok {
			all = append(all, network+" "+strings.TrimSuffix(strings.TrimSpace(warning), `"`))
		}
	}
	return all
}

// receiverEnvironment returns the environment without the settings of other servers.
func receiverEnvironment(all []string, pin bool) (kept []string) {
	for _, v := range all {
		if !strings.HasPrefix(v, "FRESHET_") && !(pin && strings.HasPrefix(v, "GOMAXPROCS=")) {
			kept = append(kept, v)
		}
	}
	if pin {
		kept = append(kept, "GOMAXPROCS=1")
	}
	return kept
}

// start starts the process, on one core if `pin` is set: a process inherits the cores of the thread
// that starts it.
func (r *receiver) start(pin bool) error {
	if !pin {
		return r.cmd.Start()
	}
	cores, err := allowedCores()
	if err != nil {
		return err
	}
	return onCore(cores[len(cores)-1], r.cmd.Start)
}

// allowedCores returns the cores that this process may use. A single core is an error.
func allowedCores() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for i := range len(set) * strconv.IntSize {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	if len(cores) < 2 {
		return nil, errors.New("--pin needs two cores, and there is one")
	}
	return cores, nil
}

// onCore calls `do` on one core. Afterwards the thread gets its cores back and lives on, because
// its end would kill the receiver that it has started (Pdeathsig).
func onCore(core int, do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	err := do()
	return errors.Join(err, os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &before)))
}

// awaitReady waits until the receiver answers.
func (r *receiver) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var l answer.Listening
		text, err := os.ReadFile(r.path("data", "listening.json"))
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err == nil {
			r.server.Address = "http://" + l.HTTP
			_, err = r.figures(ctx)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-r.exited:
			if r.cmd.ProcessState.ExitCode() == command.Usage {
				return conf.Mistake(fmt.Errorf("flags behind --: %s", strings.ReplaceAll(r.said(), "freshet: ", "")))
			}
			return errors.New("start a receiver: the process has ended") // the method stop reports how the receiver ended
		case <-ctx.Done():
			return fmt.Errorf("start a receiver: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// stopLimit is how long a receiver may take to drain before it is killed.
const stopLimit = 20 * time.Second

// stop ends a receiver that was started, and removes what it wrote.
func (r *receiver) stop() error {
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // an error means that the process has already ended
	select {
	case <-r.exited:
	case <-time.After(stopLimit):
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
	var err error
	if state := r.cmd.ProcessState; !state.Success() && state.ExitCode() != command.Usage { // reported already
		err = fmt.Errorf("the receiver ended with %v, and said:\n%s", state, r.said())
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// figures returns the receiver's cost so far.
func (r *receiver) figures(ctx context.Context) (p answer.Process, err error) {
	return p, r.ask(ctx, "/api/v1/status/process", &p)
}

// books returns the receiver's counts so far.
func (r *receiver) books(ctx context.Context) (b answer.Ledger, err error) {
	return b, r.ask(ctx, "/api/v1/status/ledger", &b)
}

func (r *receiver) ask(ctx context.Context, path string, data any) error {
	_, a, err := r.server.Ask(ctx, path, url.Values{})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.Data, data); err != nil {
		return fmt.Errorf("read the answer of %s to %s: %w", r.server, path, err)
	}
	return nil
}

// untilHangup returns a context that also ends at a hangup of the terminal, and when writing the output
// fails because its reader has gone. The second case would otherwise kill the process by a signal. In
// both cases bench stops the receiver and removes its directory.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	closedPipe := make(chan os.Signal, 1)
	signal.Notify(closedPipe, syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx, func() {
		cancel()
		signal.Stop(closedPipe)
	}
}

// checkServeFlags refuses receiver flags that only bench may set.
func checkServeFlags(flags []string) error {
	for _, f := range flags {
		name, _, _ := strings.Cut(f, "=")
		switch name {
		case "--role":
			return errors.New("--role: goes before --")
		case "--config", "--data-dir", "--http-listen":
			return fmt.Errorf("%s: bench cannot start a receiver with this flag; start a server with it, "+
				"and measure that server with --server", name)
		}
	}
	return nil
}
