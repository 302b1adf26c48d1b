package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A test of a cluster has network namespaces of its own: one for the test, with a bridge, and one for
// each machine behind the bridge. So ports are always free, and a machine's link can be cut.

// insideVariable is set in the environment of a process that runs in its test's network namespace.
const insideVariable = "FRESHET_E2E_NAMESPACE"

// inNamespace runs a test once more in namespaces of its own, one for the network and one for mounts, and
// reports whether the present run is the one in the namespaces. A user who is not root becomes root of a
// user namespace, which the kernel must allow.
func inNamespace(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		must(t, "ip", "link", "set", "lo", "up")
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"="+freshet, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin") // has tc
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Errorf("the test failed in its network namespace: %v\n%s", err, said.String())
	} else if testing.Verbose() {
		t.Log(said.String())
	}
	return false
}

// must is a helper that runs a program, which has to succeed.
func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// machine is a network namespace with an address, behind the test's bridge.
type machine struct {
	t       *testing.T
	name    string
	address string
	process string // id of a process that keeps the namespace alive

	silenced int // how often the machine was silenced towards another one
}

// testAddress is the address of the test itself at the bridge.
const testAddress = "10.99.0.254"

// machines makes machines with these names.
func machines(t *testing.T, names ...string) (all map[string]*machine) {
	t.Helper()
	must(t, "ip", "link", "add", "bridge", "type", "bridge")
	must(t, "ip", "address", "add", testAddress+"/24", "dev", "bridge")
	must(t, "ip", "link", "set", "bridge", "up")
	all = map[string]*machine{}
	for i, name := range names {
		keeper := exec.Command("sleep", "infinity")
		keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := keeper.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = keeper.Process.Kill()
			_ = keeper.Wait() // it was killed
		})
		m := &machine{t: t, name: name, address: fmt.Sprintf("10.99.0.%d", i+1), process: strconv.Itoa(keeper.Process.Pid)}
		must(t, "ip", "link", "add", m.link(), "type", "veth", "peer", "name", "eth0", "netns", m.process)
		must(t, "ip", "link", "set", m.link(), "master", "bridge", "up")
		m.run("ip", "link", "set", "lo", "up")
		m.run("ip", "address", "add", m.address+"/24", "dev", "eth0")
		m.run("ip", "link", "set", "eth0", "up")
		all[name] = m
	}
	return all
}

// link returns the name of the machine's network interface at the bridge, which the kernel limits to 15 characters.
func (m *machine) link() string { return "to-" + strings.ReplaceAll(m.address, ".", "-") }

// command returns a command on the machine.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", m.process, "--net", name}, args...)...)
}

func (m *machine) run(name string, args ...string) {
	m.t.Helper()
	if out, err := m.command(name, args...).CombinedOutput(); err != nil {
		m.t.Fatalf("on machine %s: %s %s: %v\n%s", m.name, name, strings.Join(args, " "), err, out)
	}
}

// cut takes down the machine's link. The returned function restores it.
func (m *machine) cut() (restore func()) {
	m.t.Helper()
	must(m.t, "ip", "link", "set", m.link(), "down")
	return func() { must(m.t, "ip", "link", "set", m.link(), "up") }
}

// silence drops the packets that the machine sends to another machine, but not the packets in the other
// direction. The returned function ends this. Two faults at once may silence the same two machines.
func (m *machine) silence(to *machine) (restore func()) {
	m.t.Helper()
	m.silenced++
	route := []string{"blackhole", to.address + "/32", "metric", strconv.Itoa(m.silenced)}
	m.run("ip", append([]string{"route", "add"}, route...)...)
	return func() { m.run("ip", append([]string{"route", "delete"}, route...)...) }
}

// slow is a fault: the machine receives and sends at most 1 Mbit/s. The returned function ends this.
func (m *machine) slow() (restore func()) {
	m.t.Helper()
	limit := []string{"root", "tbf", "rate", "1mbit", "burst", "32kbit", "latency", "400ms"}
	must(m.t, "tc", append([]string{"qdisc", "add", "dev", m.link()}, limit...)...)
	m.run("tc", append([]string{"qdisc", "add", "dev", "eth0"}, limit...)...)
	return func() {
		must(m.t, "tc", "qdisc", "delete", "dev", m.link(), "root")
		m.run("tc", "qdisc", "delete", "dev", "eth0", "root")
	}
}
