package files

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/segment"
)

// childDir is an environment variable. If it is set, this test binary is the process that TestKilled
// kills: it locks the directory, appends until it is killed, and prints each acknowledged position.
const childDir = "FRESHET_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println(appendForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func appendForEver(dir string) error {
	if _, err := LockDir(dir); err != nil {
		return err
	}
	d, err := Open(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	l, report, err := journal.Open(d, journal.Options{Mark: 0x51f0a7d3, SegmentBytes: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Println(uint64(report.Last))
	for {
		frames := make([]journal.Frame, 1+int(report.Last)%50)
		for i := range frames {
			n := int(report.Last) + i + 1
			frames[i] = journal.Frame{Shard: uint16(n % 1024), Payload: []byte(strings.Repeat("x", n%300) + strconv.Itoa(n))}
		}
		if report.Last, err = l.Append(frames); err != nil {
			return err
		}
		fmt.Println(uint64(report.Last))
	}
}

// A process that is killed at any moment loses nothing that it acknowledged, and releases its lock.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 200 {
			lines.Scan()
		}
		if _, err := LockDir(dir); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d", child.Process.Pid)) {
			t.Errorf("while the child holds the lock, LockDir returned %v, want an error with the child's PID", err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		acknowledged := lines.Text()
		for lines.Scan() { // until the output ends; the last line may be cut short
			if _, err := strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("round %d: the child printed %q, no position", round, lines.Text())
			}
			acknowledged = lines.Text()
		}
		_ = child.Wait() // fails, because the test killed the process

		lock, err := LockDir(dir)
		if err != nil {
			t.Fatalf("LockDir after the child died: %v", err)
		}
		d, err := Open(filepath.Join(dir, "journal"))
		if err != nil {
			t.Fatal(err)
		}
		l, _, err := journal.Open(d, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var next journal.Position = 1
		if err := l.Replay(func(pos journal.Position, r journal.Frame) error {
			if want := strings.Repeat("x", int(pos)%300) + strconv.Itoa(int(pos)); pos != next || string(r.Payload) != want {
				return fmt.Errorf("got frame %d, which has %d bytes; want frame %d", pos, len(r.Payload), next)
			}
			next++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(acknowledged); err != nil || int(next) <= n {
			t.Fatalf(
				"round %d: position %q was acknowledged, but the last position in the journal is %d", round, acknowledged, next-1)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("data directory %s is in use by process %d: stop it, or choose another directory",
		dir, os.Getpid())
	if _, err := LockDir(dir); err == nil || err.Error() != want {
		t.Errorf("second: %v\nwant %s", err, want)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := LockDir(dir)
	if err != nil {
		t.Fatalf("after Unlock: %v", err)
	}
	// The lock file is empty for a moment after a process has taken the lock.
	if err := os.Truncate(filepath.Join(dir, lockName), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(dir); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("unknown holder: %v", err)
	}
	if err := again.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// Callers of Holder may kill the process that it returns. After a crash, the number in the lock file
// may belong to any process, such as this test.
func TestHolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := Holder(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("never locked: %v", err)
	}
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Holder(dir); err != nil || p.Pid != os.Getpid() {
		t.Errorf("the holder is %v, %v; want process %d", p, err, os.Getpid())
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"", "x", "0", "-1", "4194305", strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())} {
		if err := os.WriteFile(filepath.Join(dir, lockName), []byte(left+"\n"), fileMode); err != nil {
			t.Fatal(err)
		}
		if p, err := Holder(dir); !errors.Is(err, ErrNoHolder) {
			t.Errorf("with %q in the lock file, Holder returns %v, %v; want ErrNoHolder", left, p, err)
		}
	}
}

// Errors name the directory, the cause and the fix. Permissions do not restrict root, who may run
// the tests. So the tests use a file with the name of the directory, and a directory in /proc.
func TestDirectoryCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, fileMode); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, path, want string }{
		{"a file has the name", file, "make directory " + file + ": not a directory"},
		{"no file can be created", "/proc/self", "write to directory /proc/self as user "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, openErr := Open(c.path)
			_, lockErr := LockDir(c.path)
			for _, err := range []error{openErr, lockErr} {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "write-test") {
					t.Errorf("got  %v\nwant %s", err, c.want)
				}
			}
		})
	}
}

// Open removes the file with which it tests that the directory is writable. List returns files only.
func TestList(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "directory"), dirMode); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(); err != nil || !slices.Equal(names, []string{"b"}) {
		t.Errorf("List returned %v, want b; error %v", names, err)
	}
	if _, err := d.Create("directory"); err == nil {
		t.Error("Create made a file over a directory")
	}
	if _, _, err := d.Open("missing"); err == nil {
		t.Error("opened a missing file")
	}
}

// The journal's recovery depends on these properties of a real directory.
func TestDirKeepsPromises(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		r, size, err := d.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b := make([]byte, size)
		if _, err := r.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(w segment.Writer, s string) { _, err := w.Write([]byte(s)); must(err) }

	w, err := d.Create("a")
	must(err)
	write(w, "kept cut")
	must(d.Truncate("a", 5))
	write(w, "on") // is appended where the file was cut
	must(w.Sync())
	must(w.Close())
	if got := read("a"); got != "kept on" {
		t.Errorf("after a cut: %q", got)
	}
	w, err = d.Create("b")
	must(err)
	write(w, "old")
	must(w.Close())
	must(d.Rename("a", "b"))
	must(d.SyncDir())
	if got := read("b"); got != "kept on" {
		t.Errorf("after a rename: %q", got)
	}
	w, err = d.Overwrite("b")
	must(err)
	write(w, "KE")
	write(w, "PT")
	if got := read("b"); got != "KEPT on" {
		t.Errorf("overwritten: %q", got)
	}
	must(d.Truncate("b", 4))
	must(w.Sync())
	must(w.Close())
	if got := read("b"); got != "KEPT" {
		t.Errorf("overwritten and cut, the file b has %q", got)
	}
	if _, err := d.Overwrite("missing"); err == nil {
		t.Error("overwrote a missing file")
	}
	w, err = d.Create("b")
	must(err)
	must(w.Close())
	if _, size, err := d.Open("b"); err != nil || size != 0 {
		t.Errorf("after Create, the existing file has %d bytes, want 0; error %v", size, err)
	}
	must(d.Remove("b"))
	if names, err := d.List(); err != nil || len(names) != 0 {
		t.Errorf("after Remove, List returns %v, error %v", names, err)
	}
}
