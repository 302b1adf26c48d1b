package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
)

// diagnosis runs `freshet diagnose --json` with more arguments.
func diagnosis(t *testing.T, args ...string) (found diagnose.Diagnosis) {
	t.Helper()
	cmd := exec.Command(freshet, append([]string{"diagnose", "--json"}, args...)...)
	var notes strings.Builder
	cmd.Stderr = &notes
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, &notes)
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatalf("diagnose printed no JSON: %v in %s", err, text)
	}
	return found
}

// during is a helper that calls `do` again and again in the background while `work` runs.
func during(t *testing.T, do func(i int), work func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				do(i)
			}
		}
	}()
	work()
	close(quit)
	<-done
}

// The diagnosis of a flood of labels names the metric, the label and the sender. The command and the
// API both return the diagnosis. The command reads the running server, a record in a file, or a
// record that the server kept.
func TestDiagnoseNamesAFlood(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--limits-max-series-per-metric", "1000")
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file := filepath.Join(t.TempDir(), "flood.zip")
	var found diagnose.Diagnosis
	during(t, func(i int) {
		for j := range 20 {
			_, _ = fmt.Fprintf(conn, "flood.requests:1|c|#request_id:%d-%d", i, j) // if nobody listens, the test fails elsewhere
		}
	}, func() { found = diagnosis(t, "--server", p.HTTP, "--save", file) })

	sender := conn.LocalAddr().String()
	check := func(what string, d diagnose.Diagnosis) {
		t.Helper()
		if len(d.Causes) == 0 || d.Causes[0].Name != diagnose.Cardinality || d.Causes[0].Score < diagnose.Clear {
			t.Fatalf("the causes of %s are %+v, want a clear flood of series as the first cause", what, d.Causes)
		}
		for _, want := range []string{"metric flood_requests", "label request_id", sender} {
			if !strings.Contains(d.Causes[0].Title, want) {
				t.Errorf("the first cause of %s is %q, which lacks %q", what, d.Causes[0].Title, want)
			}
		}
	}
	check("the server", found)
	check("the file", diagnosis(t, file))
	check("--last", diagnosis(t, "--server", p.HTTP, "--last"))
	check("--record", diagnosis(t, "--server", p.HTTP, "--record", found.Record.ID))
	var answered diagnose.Diagnosis
	if err := p.ask("/api/v1/status/records/"+found.Record.ID+"/diagnosis", nil, &answered); err != nil {
		t.Fatal(err)
	}
	check("the API", answered)

	// The text output has no colours in a pipe.
	text, err := exec.Command(freshet, "diagnose", file).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "1. A flood of series") || strings.Contains(string(text), "\x1b") {
		t.Errorf("diagnose as text: %v: %s", err, text)
	}
}

// The diagnosis has the kernel's drops as its first cause, even if a busy machine has further causes.
// The server is paused while datagrams arrive, so that the kernel drops them.
func TestDiagnoseNamesKernelDrops(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--dogstatsd-receive-buffer", "64KiB")
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line := []byte("drops.requests:1|c|#padding:" + strings.Repeat("x", 500))
	var found diagnose.Diagnosis
	during(t, func(i int) {
		// The server is paused for most of each half second.
		switch i % 50 {
		case 0:
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		case 30:
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		}
		for range 20 {
			_, _ = conn.Write(line)
		}
	}, func() { found = diagnosis(t, "--server", p.HTTP) })
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	if len(found.Causes) == 0 || found.Causes[0].Name != diagnose.KernelDrops || found.Causes[0].Score < diagnose.Clear {
		t.Errorf("the causes are %+v, want first the kernel's drops", found.Causes)
	}
}

// The binary has none of the faults that lab/diagnose injects; only a build tag adds them.
func TestNoFaultsInTheBinary(t *testing.T) {
	binary, err := os.ReadFile(freshet) // even a stripped binary has the names of its functions
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(binary), "internal/lib/pool.") {
		t.Fatal("the binary has no names of functions, so this test checks nothing")
	}
	if strings.Contains(string(binary), "internal/lib/fault.") {
		t.Error("the binary has functions of internal/lib/fault")
	}
}
