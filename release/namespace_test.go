package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// insideVariable names the directory of the real release, in the environment of a test that runs in namespaces. It
// does not begin with FRESHET_: generate removes such variables.
const insideVariable = "RELEASE_TEST_DIR"

// inNamespaces runs a test once more with a network and mounts of its own, and reports whether the present run is the
// one inside. So the usual ports are free. A user who is not root becomes root of a user namespace.
func inNamespaces(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		check(t, run(exec.Command("ip", "link", "set", "lo", "up")))
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"="+real.out, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.Env = append(cmd.Env, oneUser+"=yes")
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the test failed in its namespaces: %v\n%s", err, said)
	} else {
		t.Logf("%s", said)
	}
	return false
}

// oneUser is set in the environment of a test in a user namespace, where no other user exists.
const oneUser = "RELEASE_TEST_ONE_USER"

// owned gives a directory to a user.
func owned(t *testing.T, dir string, uid, gid int) {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o755))
	if os.Getenv(oneUser) == "" {
		check(t, os.Chown(dir, uid, gid))
	}
}

// process is Freshet in a root directory of its own, where it is the only program.
type process struct {
	root     string
	uid, gid int
	env      []string
	said     bytes.Buffer
}

// command returns a command that runs in the process' root and as its user.
func (p *process) command(words ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: words[0], Args: words, Dir: "/", Env: p.env}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Pdeathsig: syscall.SIGKILL}
	if os.Getenv(oneUser) == "" {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}
	}
	return cmd
}

// serves starts a server, waits until it is ready by its own probe, sends an increment by send, asks PromQL for it,
// and stops the server.
func (p *process) serves(t *testing.T, send func(line string) error, probe []string, words ...string) {
	t.Helper()
	cmd := p.command(words...)
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if err := p.command(probe...).Run(); err == nil {
		t.Errorf("%s succeeds although no server runs", probe)
	}
	check(t, cmd.Start())
	defer func() {
		check(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ends: %v\n%s", err, &p.said)
		}
	}()
	eventually(t, func() error { return run(p.command(probe...)) })
	check(t, send("installed:7|c"))
	eventually(t, func() error {
		answer, err := http.Get("http://127.0.0.1:7125/api/v1/query?" + url.Values{"query": {"installed"}}.Encode())
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(body), `"7"]`) {
			err = fmt.Errorf("the query for the increment answers %s", body)
		}
		return err
	})
}

// eventually repeats ask until it succeeds. The limit is for machines that have other work.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	err := ask()
	for end := time.Now().Add(2 * time.Minute); err != nil && time.Now().Before(end); err = ask() {
		time.Sleep(50 * time.Millisecond)
	}
	check(t, err)
}

// sendTo returns a function that sends a datagram to an address.
func sendTo(network, address string) func(string) error {
	return func(line string) error {
		conn, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte(line))
		return err
	}
}

// shortDir returns a directory whose path is short enough for a socket below it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "root")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755)) // other users run Freshet in it
	return dir
}

// copyProgram copies a program and its libraries of this machine into a root.
func copyProgram(t *testing.T, root, program string) {
	t.Helper()
	libraries, err := exec.Command("ldd", program).Output()
	check(t, err)
	for _, path := range append(strings.Fields(string(libraries)), program) {
		if !strings.HasPrefix(path, "/") {
			continue
		}
		text, err := os.ReadFile(path)
		check(t, err)
		check(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		check(t, os.WriteFile(filepath.Join(root, path), text, 0o755))
	}
}
