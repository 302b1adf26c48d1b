package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a prompt may take on a busy machine.
const patience = 2 * time.Minute

// terminal is a pseudo-terminal with a program in it.
type terminal struct {
	keys   *os.File // the side of the person
	tty    *os.File // the side of the program
	screen *output  // everything that was written
	read   int      // how much of it the test has looked at
	cmd    *exec.Cmd
	exited chan error
}

// prompt runs `freshet query -i` in a pseudo-terminal, and waits until it takes keys in raw mode.
func prompt(t *testing.T, state, server string) *terminal {
	t.Helper()
	x := newTerminal(t)
	x.cmd = exec.Command(freshet, "query", "--interactive", "--server", server)
	x.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "TERM=xterm")
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.tty, x.tty, x.tty
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("the terminal showed %q", x.screen.String())
		}
	})
	go func() { x.exited <- x.cmd.Wait() }()
	x.shows(t, "freshet> ")
	if x.mode(t).Lflag&unix.ICANON != 0 {
		t.Error("the prompt is there, but not in raw mode")
	}
	return x
}

// newTerminal returns a terminal without a program.
func newTerminal(t *testing.T) *terminal {
	t.Helper()
	x := &terminal{screen: new(output), exited: make(chan error, 1)}
	x.keys, x.tty = openTerminal(t)
	t.Cleanup(func() { x.tty.Close() })
	go func() { _, _ = io.Copy(x.screen, x.keys) }() // ends with an error when the program and the test have left
	return x
}

// mode returns the mode of the terminal.
func (x *terminal) mode(t *testing.T) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

func (x *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// found looks for a text behind those that were found before.
func (x *terminal) found(text string) error {
	screen := x.screen.String()
	at := strings.Index(screen[x.read:], text)
	if at < 0 {
		return fmt.Errorf("the terminal shows %q", screen[x.read:])
	}
	x.read += at + len(text)
	return nil
}

func (x *terminal) shows(t *testing.T, text string) {
	t.Helper()
	eventually(t, patience, "the terminal shows "+text, func() error { return x.found(text) })
}

// completes presses Tab until the terminal shows a text: on a busy machine names may come too late. It leaves
// the prompt more time for each Tab than it waits for names, so that keys do not pile up.
func (x *terminal) completes(t *testing.T, written, text string) {
	t.Helper()
	x.press(t, written)
	var pressed time.Time
	eventually(t, patience, "Tab completes "+text, func() error {
		if time.Since(pressed) > 3*time.Second {
			x.press(t, "\t")
			pressed = time.Now()
		}
		return x.found(text)
	})
}

// TestQueryPrompt writes a query by Tab, draws it, makes mistakes, and recalls it in the next session.
func TestQueryPrompt(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "prompted.hits:1|c|#page:home"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the metric is stored", func() error {
		if found, err := p.query("prompted_hits"); err != nil || len(found) == 0 {
			return fmt.Errorf("%v (%v)", found, err)
		}
		return nil
	})
	state := t.TempDir()
	x := prompt(t, state, p.HTTP)
	x.completes(t, "prompted_", "prompted_hits")
	x.completes(t, "{pa", "page")
	x.completes(t, `="h`, `home"`)
	x.press(t, "}\r")
	x.shows(t, "host") // the result has this label
	x.shows(t, "freshet> ")
	x.completes(t, `\ra`, `\range `)
	x.press(t, "5m\r")
	x.shows(t, "freshet 5m> ")
	x.press(t, "\x1b[A\x1b[A\r") // the query before the command
	x.shows(t, "┤")              // the axis of a plot
	x.shows(t, "freshet 5m> ")
	x.press(t, "\\instant\r")
	x.shows(t, "freshet> ")
	x.press(t, "sum(ratio]\r")
	x.shows(t, "parse error")
	x.shows(t, "  sum(ratio]\r\n           ^\r\n")
	x.shows(t, "freshet> ")
	x.press(t, "prompted_hit\r")
	x.shows(t, "no metric is named prompted_hit; did you mean prompted_hits?")
	x.shows(t, "freshet> ")
	x.press(t, "nonsense(\x03vector(40 + 1)\r") // Ctrl-C clears the line
	x.shows(t, "41\r\n")
	x.shows(t, "freshet> ")
	x.press(t, "\x04")
	if err := <-x.exited; err != nil {
		t.Errorf("after Ctrl-D: %v", err)
	}

	next := prompt(t, state, p.HTTP)
	next.press(t, "\x1b[A")
	next.shows(t, "vector(40 + 1)")
	if info, err := os.Stat(filepath.Join(state, "freshet", "query_history")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the history is %v (%v), want mode 0600", info, err)
	}
}

// However a session ends, the terminal is in the mode in which it was.
func TestQueryPromptRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	sends := func(s os.Signal) func(*testing.T, *terminal) {
		return func(t *testing.T, x *terminal) {
			t.Helper()
			if err := x.cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	presses := func(keys string) func(*testing.T, *terminal) {
		return func(t *testing.T, x *terminal) { t.Helper(); x.press(t, keys) }
	}
	want := newTerminal(t).mode(t)
	for _, tt := range []struct {
		name  string
		leave func(*testing.T, *terminal)
	}{
		{"Ctrl-D", presses("\x04")},
		{"the command", presses("\\q\r")},
		{"the word", presses("exit\r")},
		{"SIGTERM", sends(syscall.SIGTERM)},
		{"SIGTERM while a line is written", func(t *testing.T, x *terminal) {
			x.press(t, "sum(")
			x.shows(t, "sum(")
			sends(syscall.SIGTERM)(t, x)
		}},
		{"SIGINT from elsewhere", sends(syscall.SIGINT)},
		{"SIGHUP", sends(syscall.SIGHUP)},
		{"SIGQUIT", sends(syscall.SIGQUIT)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := prompt(t, t.TempDir(), "127.0.0.1:1")
			tt.leave(t, x)
			select {
			case err := <-x.exited:
				if err != nil {
					t.Errorf("the command ends by %v", err)
				}
			case <-time.After(patience):
				t.Fatal("the command does not end")
			}
			if got := x.mode(t); got != want {
				t.Errorf("the terminal is left in mode %+v, want %+v", got, want)
			}
		})
	}
}

// Ctrl-C ends a query whose answer does not come, and the session goes on.
func TestQueryPromptInterrupts(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	x := prompt(t, t.TempDir(), silent.Addr().String())
	x.press(t, "up\r")
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	x.press(t, "\x03")
	x.shows(t, "interrupted")
	x.shows(t, "freshet> ")
}
