package kubelet

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Ids of containers.
var (
	idA = strings.Repeat("a1", 32)
	idB = strings.Repeat("b2", 32)
)

// cgroup makes a directory as a cgroup, and returns its inode.
func cgroup(t *testing.T, path ...string) []byte {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.AppendUint(nil, number(info).Ino, 10)
}

// The names of cgroups are those of the runtimes' drivers.
func TestContainerID(t *testing.T) {
	for name, want := range map[string]string{
		idA:                                idA, // cgroupfs
		"crio-" + idA:                      idA,
		"cri-containerd-" + idA + ".scope": idA, // systemd
		"docker-" + idA + ".scope":         idA,
		"crio-" + idA + ".scope":           idA,
		"libpod-" + idA + ".scope":         idA,
		"kubepods-burstable-podu.slice:cri-containerd:" + idA: idA, // a name for systemd, with the driver cgroupfs
		"crio-conmon-" + idA + ".scope":                       "",  // watches the container
		idA + ".mount":                                        "",
		"x" + idA:                                             "",
		"cri-containerd-" + idA[1:] + ".scope":                "",
		"kubepods-burstable-pod0b1e4c1c_5f0e_4c7a_9d7e_000000000001.slice": "",
		strings.ToUpper(idA): "",
		"":                   "",
	} {
		if got := containerID(name); got != want {
			t.Errorf("%s is the container %q, want %q", name, got, want)
		}
	}
}

// A cgroup below a container's belongs to it, such as the one that crun makes, unless it is another container's.
func TestReadCgroups(t *testing.T) {
	root := t.TempDir()
	pod := filepath.Join(root, "kubepods.slice", "kubepods-burstable.slice", "kubepods-burstable-podu_1.slice")
	want := map[string]string{
		string(cgroup(t, pod, "crio-"+idA+".scope")):                                         idA,
		string(cgroup(t, pod, "crio-"+idA+".scope", "container")):                            idA,
		string(cgroup(t, pod, "crio-"+idA+".scope", "container", "kubepods")):                idA,
		string(cgroup(t, pod, "crio-"+idA+".scope", "container", "kubepods", "podu-2", idB)): idB,
		string(cgroup(t, pod, "crio-"+idA+".scope", "container", "kubepods", "podu-2")):      idA,
		string(cgroup(t, root, "docker", idB)):                                               idB,
	}
	cgroup(t, pod, "crio-conmon-"+idA+".scope")
	got, err := readCgroups(root)
	if err != nil || len(got) != len(want) {
		t.Errorf("found %d cgroups, want %d; error %v", len(got), len(want), err)
	}
	for inode, id := range got {
		if w := want[strconv.FormatUint(inode, 10)]; w != id {
			t.Errorf("the inode %d is of the container %q, want %q", inode, id, w)
		}
	}

	info, err := os.Stat(root)
	if err != nil {
		t.Fatal(err)
	}
	other := cgroupReader{device: number(info).Dev + 1, left: maxCgroups, found: cgroups{}}
	if err := other.read(root, "", 0); err != nil || len(other.found) != 0 {
		t.Errorf("on another file system: found %v, error %v", other.found, err)
	}
	bounded := cgroupReader{device: number(info).Dev, left: 3, found: cgroups{}}
	if err := bounded.read(root, "", 0); err == nil || bounded.left < -1 {
		t.Errorf("a tree that is too large: found %v, error %v", bounded.found, err)
	}
	if _, err := readCgroups(filepath.Join(root, "missing")); err == nil || !strings.Contains(err.Error(), "cgroup_dir") {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// A container that says only the inode of its cgroup has the labels of its pod once the kubelet lists it. Cgroups are
// read at the start, and then only for an inode that is not known, as often as the kubelet is asked.
func TestInodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{id: idA}
		p, renewed := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
		p.CgroupDir = t.TempDir()
		pod := filepath.Join(p.CgroupDir, "kubepods", "podu-1")
		reads := func() float64 { return testutil.ToFloat64(p.reads.WithLabelValues("ok")) }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := reads(); n != 1 {
			t.Errorf("cgroups were read %v times, though no sender has said an inode", n)
		}

		inode := cgroup(t, pod, idA)
		if p.Find(nil, inode, nil) != nil || testutil.ToFloat64(p.missed) != 1 {
			t.Errorf("the container is known before it is listed; %v misses", testutil.ToFloat64(p.missed))
		}
		time.Sleep(5 * time.Second)
		f.late.Store(true)
		time.Sleep(2*wait + time.Millisecond)
		synctest.Wait()
		if pod := p.Find(nil, inode, nil); pod == nil || pod.Container != "side" || pod.ContainerID != idA ||
			renewed.Load() != 1 {
			t.Errorf("the container is %+v, and was renewed %d times", pod, renewed.Load())
		}
		if pod := p.Find([]byte("abc"), inode, nil); pod == nil || pod.Container != "shop" {
			t.Errorf("the id comes before the inode: %+v", pod)
		}
		if n := p.known.Load().listed(); n != 4 { // a pod and three containers
			t.Errorf("%d containers and pods are known, want 4", n)
		}
		before := reads()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := reads() - before; n != 0 || p.Find(nil, inode, nil) == nil {
			t.Errorf("cgroups were read %v times while all inodes were known", n)
		}

		p.Find(nil, []byte("7"), nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := reads() - before; n < 2 || n > 55 {
			t.Errorf("cgroups were read %v times in 10 minutes for an inode that is never there", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Looking an inode up makes no garbage, whether it is found or not.
func TestInodesAreFoundWithoutGarbage(t *testing.T) {
	f := &fake{id: idA}
	f.late.Store(true)
	p, _ := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
	p.CgroupDir = t.TempDir()
	inode, unknown := cgroup(t, p.CgroupDir, idA), []byte("18446744073709551615")
	p.Begin()
	p.Find(nil, unknown, nil)
	if n := testing.AllocsPerRun(100, func() {
		if p.Find(nil, inode, nil) == nil || p.Find(nil, unknown, nil) != nil {
			t.Error("the wrong inode is found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Where cgroups cannot be read, containers are still found by their ids.
func TestCgroupsCannotBeRead(t *testing.T) {
	f := &fake{}
	p, _ := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
	p.CgroupDir = filepath.Join(t.TempDir(), "missing")
	p.Begin()
	if n := testutil.ToFloat64(p.reads.WithLabelValues("error")); n != 1 || p.Find([]byte("abc"), nil, nil) == nil {
		t.Errorf("%v failed reads are counted, and the container abc is %v", n, p.Find([]byte("abc"), nil, nil))
	}
}
