package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// step is one command of a block, with the output that the manual shows.
type step struct{ command, output string }

// steps returns the commands of a block. A block of kind console has commands behind "$ ", and their output.
func steps(b *block) (all []step) {
	if b.kind == "sh" {
		return []step{{command: b.text}}
	}
	continued := false
	for line := range strings.Lines(b.text) {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case is:
			all = append(all, step{command: command})
		case continued:
			all[len(all)-1].command += line
		default:
			all[len(all)-1].output += line
		}
		continued = (is || continued) && strings.HasSuffix(line, "\\\n")
	}
	return all
}

// A reader who follows a page gets what it shows: bash runs the blocks of a page one after another, in a directory
// that looks like a checkout that was built, with the ports of the manual, which are free in a network namespace. If
// the page starts no server, one runs already.
func TestManualRuns(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	pages, blocks := manual(t)
	for _, page := range pages {
		r := reader{dir: writeFiles(t, blocks[page])}
		r.reads(t, blocks[page])
	}
}

// reader is somebody who does what a page says.
type reader struct {
	dir    string
	server *process // the last one that was started
}

func (r *reader) reads(t *testing.T, blocks []*block) {
	t.Helper()
	for i, b := range blocks {
		if b.kind != "sh" && b.kind != "console" || b.notRun != "" {
			continue
		}
		if r.server == nil {
			r.moveIn(t)
			if !startsServer(b) {
				r.start(t, serverCommand)
			}
		}
		if startsServer(b) {
			r.start(t, b.text)
			if i+1 < len(blocks) && blocks[i+1].kind == "output" {
				r.server.says(t, wordsOf(blocks[i+1].text)...)
			}
			continue
		}
		for _, s := range steps(b) {
			if i+1 < len(blocks) && blocks[i+1].kind == "output" {
				s.output = blocks[i+1].text
			}
			r.follows(t, b, s)
		}
	}
	if r.server != nil {
		r.server.kill(t)
	}
}

// serverCommand is the command by which the manual starts a server. It runs until it is stopped.
const serverCommand = "make run\n"

func startsServer(b *block) bool { return strings.HasSuffix(b.text, serverCommand) }

// moveIn makes the directory look like a checkout: make run starts the binary, as the Makefile does.
func (r *reader) moveIn(t *testing.T) {
	t.Helper()
	const starts = "./bin/freshet serve $(ARGS)"
	if !strings.Contains(readFile(t, "../Makefile"), "\n\t"+starts+"\n") {
		t.Fatalf("make run no longer runs %s", starts)
	}
	check(t, os.Mkdir(filepath.Join(r.dir, "bin"), 0o755))
	check(t, os.Symlink(freshet, filepath.Join(r.dir, "bin", "freshet")))
	script := []byte("#!/bin/sh\nexec ./bin/freshet serve $ARGS\n")
	check(t, os.WriteFile(filepath.Join(r.dir, "bin", "make"), script, 0o755))
}

// shell returns a command by which bash runs a script in the directory of the page, with its bin in the path.
func (r *reader) shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"), "HOME="+r.dir)
	return cmd
}

// start starts a server by a script that ends with serverCommand. The server takes the place of the shell.
func (r *reader) start(t *testing.T, script string) {
	t.Helper()
	if r.server != nil {
		<-r.server.exited // the page has stopped it
	}
	script = strings.TrimSuffix(script, serverCommand) + "exec " + serverCommand
	r.server = launch(t, filepath.Join(r.dir, "data"), r.shell(context.Background(), script))
}

// follows runs a step until it succeeds and prints each word of its output in the manual. A value is there about a
// second after it was sent.
func (r *reader) follows(t *testing.T, b *block, s step) {
	t.Helper()
	eventually(t, startLimit, fmt.Sprintf("the commands of %s do what the manual says", b), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		cmd := r.shell(ctx, s.command)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s%w\n%s", s.command, err, out)
		}
		for _, word := range wordsOf(s.output) {
			if !strings.Contains(string(out), word) {
				return fmt.Errorf("%sthe output has no %q:\n%s", s.command, word, out)
			}
		}
		return nil
	})
}

// wordsOf returns the words of an output. Numbers, and names of machines with less than three letters, may differ.
func wordsOf(output string) []string {
	return regexp.MustCompile(`[A-Za-z_]{3,}`).FindAllString(output, -1)
}
