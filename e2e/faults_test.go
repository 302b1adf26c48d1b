package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Exit codes of the binary.
const (
	exitFailure = 1
	exitUsage   = 2
)

// refused runs freshet with arguments that it must refuse, and returns its standard error. The
// process must end without a signal, with one line for each problem.
func refused(t *testing.T, code int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, freshet, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("freshet %s: %v, want exit code %d", strings.Join(args, " "), err, code)
	}
	if stdout.Len() > 0 {
		t.Errorf("freshet printed %s on standard output, want nothing", &stdout)
	}
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "freshet: ") || strings.Contains(line, "goroutine") || strings.Contains(line, "panic") {
			t.Errorf("this error is not written for people: %s", line)
		}
	}
	return stderr.String()
}

// serveArgs returns valid arguments of serve, followed by `args`.
func serveArgs(dir string, args ...string) []string {
	return append([]string{"serve", "--data-dir", dir, "--http-listen", "127.0.0.1:0", "--distributor-otlp-grpc-listen",
		"127.0.0.1:0", "--dogstatsd-udp", "127.0.0.1:0"}, args...)
}

// TestAFailedStartSaysWhy checks that a failed start prints one clear error, which names the cause and
// the fix. An init system decides by the exit code whether to try again.
func TestAFailedStartSaysWhy(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	dir := dataDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running := start(t, dataDir(t))
	_, udpPort, _ := net.SplitHostPort(udp.LocalAddr().String())
	data := filepath.Join(dir, "data")
	for _, c := range []struct {
		why  string
		code int
		args []string
		want string
	}{
		{"the HTTP port is in use", exitFailure, serveArgs(data, "--http-listen", tcp.Addr().String()),
			"listen on http " + tcp.Addr().String() +
				": the port is in use; stop the process that uses it, or choose another port with --http-listen"},
		{"the port of OTLP is in use", exitFailure, serveArgs(data, "--otlp-grpc-listen", tcp.Addr().String()),
			"listen on OTLP " + tcp.Addr().String() +
				": the port is in use; stop the process that uses it, or choose another port with " +
				"--distributor-otlp-grpc-listen"},
		{"the UDP port is in use", exitFailure, serveArgs(data, "--dogstatsd-udp", udp.LocalAddr().String()),
			"listen on udp " + udp.LocalAddr().String() + ": bind: address already in use; `ss -ulpn 'sport = :" + udpPort +
				"'` shows which process has the port: stop that process, or choose another port"},
		{"the path of a socket is in use", exitFailure, serveArgs(data, "--dogstatsd-unixgram", running.Unixgram),
			"listen on unixgram " + running.Unixgram + ": the path is in use by another process; `ss -xap src " +
				running.Unixgram +
				"` shows which: stop that process, or choose another path"},
		{"a file has the socket's path", exitFailure, serveArgs(data, "--dogstatsd-unix", file),
			"listen on unix " + file + ": a file that is not a socket is in the way; move it, or choose another path"},
		{"another process uses the data directory", exitFailure, serveArgs(running.dataDir),
			fmt.Sprintf("data directory %s is in use by process %d: stop it, or choose another directory",
				running.dataDir, running.cmd.Process.Pid)},
		{"the data directory cannot be created", exitFailure, serveArgs(filepath.Join(file, "data")),
			"make directory " + filepath.Join(file, "data") + ": not a directory"},
		{"the data directory cannot be written", exitFailure, serveArgs("/proc/self/task"),
			fmt.Sprintf("write to directory /proc/self/task as user %d: no such file or directory; "+
				"change its owner or its mode, or choose another directory", os.Getuid())},
		{"a misspelled flag", exitUsage, serveArgs(data, "--dogstatds-udp", "127.0.0.1:0"),
			"unknown flag: --dogstatds-udp; did you mean --dogstatsd-udp?"},
		{"a flag with an invalid value", exitUsage, serveArgs(data, "--dogstatsd-readers", "many"),
			"--dogstatsd-readers = many: is not a whole number"},
		{"a missing configuration file", exitUsage, serveArgs(data, "--config", filepath.Join(dir, "none.yaml")),
			filepath.Join(dir, "none.yaml") +
				": read the configuration: no such file or directory; name another file, or none to run on defaults"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := refused(t, c.code, c.args...); got != "freshet: "+c.want+"\n" {
				t.Errorf("freshet printed\n %swant\n freshet: %s", got, c.want)
			}
		})
	}
	if _, err := running.value("vector(1)"); err != nil {
		t.Errorf("the running process no longer answers: %v", err)
	}
}

// TestABadConfigurationNamesAllProblems checks that all mistakes in a file are reported at once, in
// the file's order, each with its line, its key and the fix.
func TestABadConfigurationNamesAllProblems(t *testing.T) {
	file := filepath.Join(dataDir(t), "freshet.yaml")
	if err := os.WriteFile(file, []byte(`data_dir: /nowhere/freshet
drian: 10s
http:
  listen: 7125
dogstatsd:
  readers: many
  tenant: a/b
  listeners:
    - network: tcp
      tenant: blue
aggregator:
  lateness: 1h
  fsync: sometimes
`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(`freshet: FILE:2: drian = 10s: is not a key; did you mean drain?
freshet: FILE:4: http.listen = 7125: must be HOST:PORT, such as 127.0.0.1:7125
freshet: FILE:6: dogstatsd.readers = many: is not a whole number
freshet: FILE:7: dogstatsd.tenant = a/b: tenant "a/b": '/' is not allowed; use 1 to 64 letters, digits, dots, dashes and underscores
freshet: FILE:9: dogstatsd.listeners[0].network = tcp: must be udp, unixgram or unix
freshet: FILE:9: dogstatsd.listeners[0].address: is missing; give HOST:PORT for udp, or a path for unixgram and unix
freshet: FILE:12: aggregator.lateness = 1h: must be 0s to 30s: at most six tiles of 10s are open at once; set it to 2s
freshet: FILE:13: aggregator.fsync = sometimes: must be interval or commit
`, "FILE", file)
	if got := refused(t, exitUsage, "serve", "--config", file); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

// TestAnEmptyAddressTurnsAnInputOff turns off each input alone, and all of them together.
func TestAnEmptyAddressTurnsAnInputOff(t *testing.T) {
	off := map[string]string{"udp": "--dogstatsd-udp", "unixgram": "--dogstatsd-unixgram", "unix": "--dogstatsd-unix"}
	for _, without := range [][]string{{"udp"}, {"unixgram"}, {"unix"}, {"udp", "unixgram", "unix"}} {
		var args []string
		for _, network := range without {
			args = append(args, off[network], "")
		}
		p := start(t, dataDir(t), args...)
		for network, address := range map[string]string{"udp": p.UDP, "unixgram": p.Unixgram, "unix": p.Unix} {
			if isOff := address == ""; isOff != slices.Contains(without, network) {
				t.Errorf("without %v, %s listens on %q, want an address only if the input is on", without, network, address)
			}
		}
		for _, socket := range []string{"dgram.sock", "stream.sock"} {
			_, err := os.Stat(filepath.Join(p.dataDir, socket))
			if exists, want := err == nil, socket == "dgram.sock" && p.Unixgram != "" ||
				socket == "stream.sock" && p.Unix != ""; exists != want {
				t.Errorf("without %v, the file %s exists: %t, want %t", without, socket, exists, want)
			}
		}
		p.terminate(t)
	}
}

// TestStaleSocketFiles checks that socket files left by kill -9 do not prevent a start.
func TestStaleSocketFiles(t *testing.T) {
	p := start(t, dataDir(t))
	p.kill(t)
	for _, path := range []string{p.Unixgram, p.Unix} {
		if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket {
			t.Fatalf("kill -9 left no socket file %s, so this test shows nothing: %v", path, err)
		}
	}
	p = start(t, p.dataDir)
	increment(t, p, "after.kill", 3)
	expectSoon(t, p, "after_kill", 3)
}

// increment adds 1 to a counter n times. It sends datagrams to the Unix socket, which loses none.
func increment(t *testing.T, p *process, name string, n int) {
	t.Helper()
	conn, err := net.Dial("unixgram", p.Unixgram)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range n {
		if _, err := fmt.Fprintf(conn, "%s:1|c", name); err != nil {
			t.Fatal(err)
		}
	}
}

func expectSoon(t *testing.T, p *process, expr string, want float64) {
	t.Helper()
	eventually(t, 30*time.Second, expr, func() error { return p.expect(expr, want, 0) })
}

// TestDamagedJournal checks that a server starts with a damaged journal, logs the damage, answers
// queries from the rest, and continues to count.
func TestDamagedJournal(t *testing.T) {
	for _, c := range []struct {
		why    string
		stop   func(*process, *testing.T) // leaves a journal or a checkpoint
		newest string                     // pattern of the files; the newest is damaged
		damage func(b []byte) []byte
		lost   float64 // how many of 3×10 increments may be lost; none with a lost checkpoint, which the journal replaces
	}{
		{"the last frame is torn, as by a power loss", (*process).kill, "*.segment", tearEnd, 10},
		{"a bit of the last frame is flipped", (*process).kill, "*.segment", flipEnd, 10},
		{"a bit in the middle is flipped", (*process).kill, "*.segment", flipMiddle, 10},
		{"a bit of the checkpoint is flipped", (*process).terminate, "*.checkpoint", flipMiddle, 0},
		{"the checkpoint is empty", (*process).terminate, "*.checkpoint", empty, 0},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel() // it mostly waits for windows
			dir, damaged := damagedData(t, false, c.stop, c.newest, c.damage)
			p := launch(t, dir, serveAs(false, dir))
			p.says(t, "the journal is damaged", damaged)
			increment(t, p, "afterwards", 7)
			expectSoon(t, p, "afterwards", 7)
			left := p.stepsLeft(t)
			if left < 30-c.lost || left > 30 {
				t.Errorf("%v of 30 increments are left; at most %v may be lost", left, c.lost)
			}
			t.Logf("%v of 30 increments are left", left)
		})
	}
}

// TestDamagedGroup damages the files of a group of one, whose log must not lose anything that was
// acknowledged. The server cuts off an incomplete last write. It rebuilds the state of a lost
// checkpoint from the log. After any other damage, the start fails with an error that names the fix.
func TestDamagedGroup(t *testing.T) {
	for _, c := range []struct {
		why    string
		stop   func(*process, *testing.T)
		newest string
		damage func(b []byte) []byte
		says   string // empty if the server does not start
	}{
		{"the last frame is torn, as by a power loss", (*process).kill, "*.segment", tearEnd,
			"the last write to the log of the group was torn and is cut off"},
		{"a bit of the last frame is flipped", (*process).kill, "*.segment", flipEnd,
			"the last write to the log of the group was torn and is cut off"},
		{"a bit of an early frame is flipped", (*process).kill, "*.segment", flipEarly, ""},
		{"the log is gone", (*process).terminate, "*.segment", nil, ""},
		{"a bit of the checkpoint is flipped", (*process).terminate, "*.checkpoint", flipMiddle,
			"a checkpoint of the group cannot be used"},
		{"the checkpoint is empty", (*process).terminate, "*.checkpoint", empty,
			"a checkpoint of the group cannot be used"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel() // it mostly waits for windows
			dir, damaged := damagedData(t, true, c.stop, c.newest, c.damage)
			if c.says != "" {
				p := launch(t, dir, serveAs(true, dir))
				p.says(t, c.says, damaged)
				increment(t, p, "afterwards", 7)
				expectSoon(t, p, "afterwards", 7)
				if left := p.stepsLeft(t); left != 30 {
					t.Errorf("%v of 30 increments are left, want all", left)
				}
				return
			}
			group := filepath.Join(dir, groupPath)
			said, err := serveAs(true, dir).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
				t.Fatalf("the server started on a damaged log: %v\n%s", err, said)
			}
			wants := []string{"restore a backup by freshet restore, or move " + group + " away"}
			if c.damage != nil {
				wants = append(wants, damaged+", byte ")
			}
			for _, want := range wants {
				if !strings.Contains(string(said), want) {
					t.Errorf("the failed start does not say %q:\n%s", want, said)
				}
			}
			// Move the group's directory away, as the error advises.
			if err := os.Rename(group, filepath.Join(dir, "damaged")); err != nil {
				t.Fatal(err)
			}
			p := launch(t, dir, serveAs(true, dir))
			increment(t, p, "afterwards", 7)
			expectSoon(t, p, "afterwards", 7)
		})
	}
}

// Functions that damage the content of a file. A nil function removes the file.
func tearEnd(b []byte) []byte    { return b[:len(b)-3] }
func flipEnd(b []byte) []byte    { b[len(b)-3] ^= 4; return b }
func flipEarly(b []byte) []byte  { b[300] ^= 4; return b } // the last frame may have more than half of a file
func flipMiddle(b []byte) []byte { b[len(b)/2] ^= 4; return b }
func empty([]byte) []byte        { return nil }

// serveAs returns the command of a server that is a group of one, or is in no group.
func serveAs(group bool, dir string) *exec.Cmd {
	cmd := serveCommand(dir)
	cmd.Env = withoutGroup(os.Environ())
	if group {
		cmd.Env = append(cmd.Env, groupVariable+"=1")
	}
	return cmd
}

// damagedData returns the data directory of a server that counted three times 10 increments and was
// stopped. In the journal, or in the group's directory, the newest file that matches the pattern is
// then damaged.
func damagedData(t *testing.T, group bool, stop func(*process, *testing.T), pattern string,
	damage func([]byte) []byte) (dir, damaged string) {
	t.Helper()
	dir = dataDir(t)
	p := launch(t, dir, serveAs(group, dir))
	for step := range 3 { // pause, so that each step has its own window and its own frame
		increment(t, p, fmt.Sprintf("step.%d", step), 10)
		expectSoon(t, p, fmt.Sprintf("step_%d", step), 10)
	}
	stop(p, t)
	path := journalPath
	if group {
		path = groupPath
	}
	files, err := filepath.Glob(filepath.Join(dir, path, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, path, err)
	}
	newest := slices.Max(files)
	if damage == nil {
		err = os.Remove(newest)
	} else {
		var b []byte
		if b, err = os.ReadFile(newest); err == nil {
			err = os.WriteFile(newest, damage(b), 0o640)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Base(newest)
}

// stepsLeft returns how many increments of damagedData the server still counts.
func (p *process) stepsLeft(t *testing.T) (left float64) {
	t.Helper()
	for step := range 3 {
		results, err := p.query(fmt.Sprintf("step_%d", step))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			left += r.Value.V
		}
	}
	return left
}

// TestFullDisk checks that a full disk loses nothing. While the disk is full, the collector keeps its
// counts, and queries return acknowledged samples. When there is space again, all samples are there,
// both at once and after a restart.
func TestFullDisk(t *testing.T) {
	d := newSmallDisk(t)
	p := start(t, d.dir)
	increment(t, p, "before", 10)
	expectSoon(t, p, "before", 10)

	d.fill(t, p)
	widely(t, p, "during", 20)
	eventually(t, 30*time.Second, "the aggregator refuses windows", func() error {
		n, err := p.ownMetric("freshet_dogstatsd_push_errors_total")
		if err == nil && n == 0 {
			err = errors.New("no push failed yet")
		}
		return err
	})
	widely(t, p, "during", 30)
	if err := p.expect("before", 10, 0); err != nil {
		t.Errorf("a query of acknowledged samples on a full disk: %v", err)
	}
	reach(time.Now().Truncate(tileWidth).Add(tileWidth + 8*time.Second)) // by then the server has failed to store a tile

	d.free(t, p)
	expectSoon(t, p, "sum(during)", 50)
	widely(t, p, "during", 5)
	expectSoon(t, p, "sum(during)", 55)
	reach(time.Now().Truncate(tileWidth).Add(tileWidth + 8*time.Second))
	check := func() {
		t.Helper()
		for expr, want := range map[string]float64{
			"before": 10, "sum(during)": 55, "increase(before[10m] anchored)": 10, "sum(increase(during[10m] anchored))": 55,
			"sum(resets(during[10m]))": 0,
		} {
			expectSoon(t, p, expr, want)
		}
		conflicts(t, p)
	}
	check()
	p.terminate(t)
	p = start(t, p.dataDir)
	check()
}

// TestStopOnAFullDisk checks that the server stops although its disk is full. When the disk has
// space again, queries return all acknowledged samples. All other samples are counted and logged
// as lost. A server that starts on the full disk answers queries, too.
func TestStopOnAFullDisk(t *testing.T) {
	t.Parallel() // it mostly waits for the drain
	d := newSmallDisk(t)
	p := start(t, d.dir)
	increment(t, p, "before", 10)
	expectSoon(t, p, "before", 10)
	d.fill(t, p)
	widely(t, p, "during", 20)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopLimit):
		t.Fatalf("the server still runs %v after SIGTERM", stopLimit)
	}
	said, lost := p.output.String(), 0
	for _, found := range regexp.MustCompile(`msg="samples are lost.* samples=(\d+)`).FindAllStringSubmatch(said, -1) {
		n, _ := strconv.Atoi(found[1])
		lost += n
	}
	if lost != 20 || strings.Contains(said, "goroutine ") {
		t.Errorf("the log says that %d samples were lost, want 20:\n%s", lost, said)
	}
	if d.mounted {
		p = startWithoutListening(t, d.dir)
		expectSoon(t, p, "before", 10)
		p.kill(t)
	}
	d.free(t, p)
	p = start(t, d.dir)
	expectSoon(t, p, "before", 10)
	increment(t, p, "before", 1)
	expectSoon(t, p, "increase(before[10m] anchored)", 11)
	conflicts(t, p)
}

// startWithoutListening starts a server that cannot write listening.json. The returned process knows
// only the HTTP address that the server printed.
func startWithoutListening(t *testing.T, dir string) *process {
	t.Helper()
	p := begin(t, dir, serveCommand(dir))
	printed := regexp.MustCompile(`HTTP +http://(\S+)`)
	eventually(t, startLimit, "freshet has printed its address", func() error {
		found := printed.FindStringSubmatch(p.output.String())
		if found == nil {
			return fmt.Errorf("it printed:\n%s", p.output)
		}
		p.HTTP = found[1]
		return nil
	})
	return p
}

// widely is a helper that adds 1 to each of n series. Their labels are so long that they do not fit
// into the free space of a file's last page.
func widely(t *testing.T, p *process, name string, n int) {
	t.Helper()
	conn := dialTap(t, "unixgram", p.Unixgram)
	for i := range n {
		if _, err := fmt.Fprintf(conn, "%s:1|c|#pad:%0500d", name, i); err != nil {
			t.Fatal(err)
		}
	}
}

// smallDisk is a data directory whose disk can be filled. The directory is a separate file system
// if this process may mount one. Otherwise fill limits the size of the server's files, so that
// writes fail at the same points.
type smallDisk struct {
	dir     string
	mounted bool
	filler  string
}

const smallDiskBytes = 64 << 20

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	d := &smallDisk{dir: dataDir(t)}
	d.filler = filepath.Join(d.dir, "filler")
	err := syscall.Mount("freshet-e2e", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDiskBytes))
	if err != nil {
		t.Logf("cannot mount a file system, so fill limits the size of files: %v", err)
		return d
	}
	d.mounted = true
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill takes all space that is left.
func (d *smallDisk) fill(t *testing.T, p *process) {
	t.Helper()
	if !d.mounted {
		limitFileSize(t, p, 0)
		return
	}
	f, err := os.Create(d.filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

func (d *smallDisk) free(t *testing.T, p *process) {
	t.Helper()
	if !d.mounted {
		select {
		case <-p.exited: // the limit of file sizes ended with the process
		default:
			limitFileSize(t, p, unix.RLIM_INFINITY)
		}
		return
	}
	if err := os.Remove(d.filler); err != nil {
		t.Fatal(err)
	}
}

// limitFileSize lets the process write only the first n bytes of any file. Further writes fail.
func limitFileSize(t *testing.T, p *process, n uint64) {
	t.Helper()
	err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}, nil)
	if err != nil {
		t.Fatal(err)
	}
}
