package run

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the process that TestWithSignals sends signals to.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_TEST_WAIT") == "" {
		os.Exit(m.Run())
	}
	ctx, _ := WithSignals(context.Background())
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	time.Sleep(time.Hour) // a drain that does not end
}

func TestWithSignals(t *testing.T) {
	for _, tt := range []struct {
		first, second syscall.Signal
		says          string
		status        int
	}{
		{syscall.SIGTERM, syscall.SIGTERM, "received terminated\n", 143},
		{syscall.SIGINT, syscall.SIGINT, "received interrupt\n", 130},
		{syscall.SIGTERM, syscall.SIGINT, "received terminated\n", 130},
	} {
		t.Run(tt.first.String()+", "+tt.second.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "RUN_TEST_WAIT=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for _, step := range []struct {
				line string
				send syscall.Signal
			}{{"running\n", tt.first}, {tt.says, tt.second}} {
				if got, err := lines.ReadString('\n'); err != nil || got != step.line {
					t.Fatalf("printed %q, %v; want %q", got, err, step.line)
				}
				if err := cmd.Process.Signal(step.send); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.Copy(io.Discard, lines); err != nil {
				t.Fatal(err)
			}
			cmd.Wait() // its error is the status
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status %d, want %d", got, tt.status)
			}
		})
	}
}

func TestWithSignalsEnds(t *testing.T) {
	ctx, stop := WithSignals(t.Context())
	stop()
	stop()
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
}
