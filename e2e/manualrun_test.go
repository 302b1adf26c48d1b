package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
		// A page may count days, so midnight does not come while it is read.
		const day = 24 * time.Hour
		if next := time.Now().Truncate(day).Add(day); time.Until(next) < time.Minute {
			reach(next.Add(time.Second))
		}
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
				eventually(t, startLimit, fmt.Sprintf("the server of %s prints what the manual says", b), func() error {
					return missing(blocks[i+1].text, r.server.output.String())
				})
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

// follows runs a step until it succeeds and prints what the manual says. A value is there about a second after it was
// sent.
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
		if err := missing(s.output, string(out)); err != nil {
			return fmt.Errorf("%s%w", s.command, err)
		}
		return nil
	})
}

// missing says what an output lacks of the one in the manual. It has each word. And for each line with figures it has a
// line with these words and figures in this order, whatever else is between them.
func missing(manual, output string) error {
	for _, word := range wordsOf(varying.ReplaceAllString(manual, " ")) {
		if !strings.Contains(output, word) {
			return fmt.Errorf("the output has no %q:\n%s", word, output)
		}
	}
	for line := range strings.Lines(manual) {
		want, figures := partsOf(line)
		found := !figures
		for line := range strings.Lines(output) {
			got, _ := partsOf(line)
			found = found || isWithin(want, got)
		}
		if !found {
			return fmt.Errorf("no line of the output has %q in this order:\n%s", want, output)
		}
	}
	return nil
}

// wordsOf returns the words of an output. Names of machines with less than three letters may differ.
func wordsOf(output string) []string {
	return regexp.MustCompile(`[A-Za-z_]{3,}`).FindAllString(output, -1)
}

// varying are the figures that another run has otherwise: dates, times of day, versions, addresses, ports, durations
// and sizes.
var varying = regexp.MustCompile(strings.Join([]string{
	`\d{4}-\d\d-\d\d`, `\d\d:\d\d(:\d\d)?(\.\d+)?`, `v?\d+\.\d+\.\d+\S*`, `:\d+\b`,
	`\d[\d.,]* ?(([nuµm]?s|min|[mhd])\d*)+\b`, `\d[\d.,]* ?([KMG]i|[kMG])?B\b`,
}, "|"))

// partsOf returns the words and figures of a line, and whether there are figures. A figure that belongs to a name, as
// in p99, is none.
func partsOf(line string) (all []string, figures bool) {
	line = varying.ReplaceAllString(line, " ")
	for _, part := range regexp.MustCompile(`\w+([.,]\d+)*`).FindAllString(line, -1) {
		isFigure := !regexp.MustCompile(`[A-Za-z_]`).MatchString(part)
		if figures = figures || isFigure; isFigure || wordsOf(part) != nil {
			all = append(all, part)
		}
	}
	return all, figures
}

// isWithin reports whether all has the parts in their order.
func isWithin(parts, all []string) bool {
	for _, part := range parts {
		at := slices.Index(all, part)
		if at < 0 {
			return false
		}
		all = all[at+1:]
	}
	return true
}

// TestFiguresOfTheManual checks what counts as a difference between an output and the one in the manual.
func TestFiguresOfTheManual(t *testing.T) {
	for _, c := range []struct {
		why, manual, output string
		same                bool
	}{
		{"a figure", "views  vm  home  1", "views  vm  home  2", false},
		{"a longer figure", "views 1", "views 12", false},
		{"figures in another order", "pod  4  12", "pod  12  4", false},
		{"a figure of another line", "a_web  3\nb_web  4", "a_web  4\nb_web  3", false},
		{"percent", "pod  75.0 %", "pod  75.1 %", false},
		{"thousands", "series  1,234", "series  1,235", false},
		{"a word", "stored 3", "refused 3", false},
		{"the name of a machine", "views  vm  home  1", "views  box-7.example  home  1", true},
		{"a date and a time", "fired 2026-11-20 00:12:00 3 times", "fired 2027-01-02 11:59:03 3 times", true},
		{"a duration", "took 9m0s, or 41 ms, or 0.2s, in 3 steps", "took 10m1s, or 3 ms, or 12s, in 3 steps", true},
		{"a duration and a figure", "took 41 ms, in 3 steps", "took 41 ms, in 4 steps", false},
		{"a size", "size 1.8 KiB, 12 B", "size 35.1 GiB, 0 B", true},
		{"an address", "udp 127.0.0.1:8125", "udp 127.0.0.1:40123", true},
		{"a port", "http://localhost:7125 2", "http://localhost:1234 2", true},
		{"a version", "freshet v0.3.0 go1.26", "freshet v0.4.1-5-gabc go1.27", true},
	} {
		if err := missing(c.manual, c.output); (err == nil) != c.same {
			t.Errorf("%s: %q and %q: %v", c.why, c.manual, c.output, err)
		}
	}
}
