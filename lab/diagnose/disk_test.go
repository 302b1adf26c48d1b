package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const freezeEnv = "FRESHET_LAB_FREEZE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(freezeEnv); dir != "" { // this process plays the lab, until the test kills it
		_ = freeze(context.Background(), dir, nil)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// The disk is thawed when the trial ends, and also when the lab is killed. A disk that stays frozen would
// make the machine unusable.
func TestAFrozenDiskIsThawed(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	program := "#!/bin/sh\necho \"$*\" >>" + calls + "\n"
	if err := os.WriteFile(filepath.Join(dir, "fsfreeze"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	wantCalls := func(want string) {
		t.Helper()
		var got []byte
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			if got, _ = os.ReadFile(calls); string(got) == want {
				return
			}
		}
		t.Fatalf("fsfreeze was called with %q, want %q", got, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- freeze(ctx, "/d", nil) }()
	wantCalls("-f /d\n")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantCalls("-f /d\n-u /d\n")

	lab := exec.Command(os.Args[0])
	lab.Env = append(os.Environ(), freezeEnv+"=/e")
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	wantCalls("-f /d\n-u /d\n-f /e\n")
	if err := lab.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = lab.Wait()
	wantCalls("-f /d\n-u /d\n-f /e\n-u /e\n")

	refuses := "#!/bin/sh\necho not permitted >&2; exit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "fsfreeze"), []byte(refuses), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, untried := errors.AsType[untriedError](freeze(t.Context(), "/f", nil)); !untried {
		t.Error("for a fault that the machine does not allow, freeze did not return an untriedError")
	}
}
