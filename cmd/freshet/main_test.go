package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// Without a command, Freshet starts a server with the defaults. The server prints its addresses and
// some commands to try. --help lists the commands.
func TestWithoutACommand(t *testing.T) {
	t.Chdir(t.TempDir()) // the server writes to ./data
	for _, key := range []string{"HTTP_LISTEN", "DOGSTATSD_UDP", "DISTRIBUTOR_OTLP_GRPC_LISTEN"} {
		t.Setenv("FRESHET_"+key, "127.0.0.1:0")
	}
	file, err := os.Create("printed")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	printed := func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, nil, file, file) }()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(printed(), "\nTry:\n"); {
		if time.Now().After(deadline) {
			t.Fatalf("the server did not print commands to try within 30s:\n%s", printed())
		}
		time.Sleep(20 * time.Millisecond)
	}
	var told answer.Listening
	err = files.ReadJSON(filepath.Join("data", answer.ListeningFile), &told)
	if err != nil || !strings.Contains(printed(), "  HTTP       http://"+told.HTTP+"  ") {
		t.Errorf("the printed text lacks the address in %+v, error %v:\n%s", told, err, printed())
	}
	stop()
	if code := <-ended; code != command.OK {
		t.Errorf("exit code %d\n%s", code, printed())
	}
	for _, flag := range []string{"--help", "-h"} {
		if code, stdout, stderr := freshet(t, flag); code != command.OK || stderr != "" ||
			!strings.Contains(stdout, "Run a server:") {
			t.Errorf("%s: exit code %d, %s%s, want 0 and help", flag, code, stdout, stderr)
		}
	}
}
