package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// disk is a file system of its own for the data directory of one node, which a test can fill and freeze.
type disk struct {
	t      *testing.T
	mount  string
	dir    string // the data directory
	filler string
	frozen string // while this file exists, writes to the log wait; empty if the disk itself can be frozen
}

const (
	diskBytes       = 4 << 30 // more than a node needs; the image is sparse
	memoryDiskBytes = 512 << 20
)

// withFaults returns the path of a build that has the faults of internal/lib/fault. The first test builds the program,
// which takes a minute of processor time, and the others wait.
func withFaults(t *testing.T) (program string) {
	t.Helper()
	program = freshet + "-faults"
	lock, err := os.OpenFile(program+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // which unlocks it
	// A signal of Go's scheduler may interrupt the wait.
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		must(t, "go", "build", "-C", "..", "-tags", "poison,faults", "-ldflags", "-s -w", "-o", program+"-built",
			"./cmd/freshet")
		must(t, "mv", program+"-built", program) // a build that is interrupted leaves no half program
	}
	return program
}

// newDisk mounts an image with ext4, which only root may do. For other users it mounts a tmpfs, which
// cannot be frozen. Their node runs a build whose log waits as if the disk were frozen. The mount ends
// with the test's namespace.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, mount: dataDir(t)}
	d.dir, d.filler = filepath.Join(d.mount, "data"), filepath.Join(d.mount, "filler")
	image := d.mount + ".image"
	defer os.Remove(image) // the mount keeps it
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, diskBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput()
	if err == nil {
		out, err = exec.Command("mount", "-o", "loop", image, d.mount).CombinedOutput()
	}
	if err != nil {
		t.Logf("no disk that can be frozen: %v: %s", err, out)
		must(t, "mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(memoryDiskBytes), "freshet-e2e", d.mount)
		d.frozen = d.mount + ".frozen" // for a build whose log waits while this file exists
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.mount, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return d
}

// longestFrost ends a frost even if the test is killed, since nobody can kill a process that writes to
// a frozen disk.
const longestFrost = "300"

// freeze makes all writes to the disk wait. The returned function ends that.
func (d *disk) freeze() (thaw func()) {
	d.t.Helper()
	if d.frozen != "" {
		if err := os.WriteFile(d.frozen, nil, 0o600); err != nil {
			d.t.Fatal(err)
		}
		return func() { _ = os.Remove(d.frozen) }
	}
	watchdog := exec.Command("sh", "-c", `sleep "$1"; fsfreeze --unfreeze "$2"`, "sh", longestFrost, d.mount)
	watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := watchdog.Start(); err != nil {
		d.t.Fatal(err)
	}
	must(d.t, "fsfreeze", "--freeze", d.mount)
	thaw = func() {
		_ = exec.Command("fsfreeze", "--unfreeze", d.mount).Run() // fails if the disk is already unfrozen
		_ = syscall.Kill(-watchdog.Process.Pid, syscall.SIGKILL)
		_ = watchdog.Wait()
	}
	d.t.Cleanup(thaw)
	return thaw
}

// fill takes all space that is left. The returned function gives it back.
func (d *disk) fill() (free func()) { return d.fillUpTo(0) }

// fillUpTo takes all space but some bytes. The returned function gives it back.
func (d *disk) fillUpTo(left int64) (free func()) {
	d.t.Helper()
	f, err := os.Create(d.filler)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	var end int64
	most := int64(diskBytes)
	if left > 0 {
		var s unix.Statfs_t
		if err := unix.Statfs(d.mount, &s); err != nil {
			d.t.Fatal(err)
		}
		most = int64(s.Bavail)*s.Bsize - left
	}
	for size := most; size >= 512; { // Fallocate writes no block
		if err := unix.Fallocate(int(f.Fd()), 0, end, size); err == nil {
			end += size
			size = min(size, most-end)
		} else if errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			d.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(d.filler); err != nil {
			d.t.Error(err)
		}
	}
}
