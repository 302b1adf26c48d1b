package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	// byInode begins the key of a container that is known by the inode of its cgroup. No id of a container and no UID
	// begins like this.
	byInode = "in-"

	// maxCgroups bounds the directories that are read. A machine with 110 pods, each with some containers, has fewer
	// than 1,000, and reading one takes about 20 us.
	maxCgroups = 20_000

	// maxDepth bounds how deep directories are read. Containers of a pod are at depth 4 or 5.
	maxDepth = 16

	idLength = 64 // of a container's id, in hexadecimal digits
	maxInode = 20 // digits of an inode
)

// cgroups has the id of each container of this machine by the inodes of its cgroups: that at which its processes see
// the root of all cgroups, and those below.
type cgroups map[uint64]string

// readCgroups finds the containers below a directory in which cgroups are mounted. Only directories of the same file
// system count: the inodes of the others, such as those of the controllers of cgroup v1, mean something else. With an
// error, it returns what it has found until then.
func readCgroups(dir string) (cgroups, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("kubelet.cgroup_dir: %w", err)
	}
	r := cgroupReader{device: number(info).Dev, left: maxCgroups, found: cgroups{}}
	if err := r.read(dir, "", 0); err != nil {
		return r.found, fmt.Errorf("kubelet.cgroup_dir: %w", err)
	}
	return r.found, nil
}

// cgroupReader reads a tree of cgroups.
type cgroupReader struct {
	device uint64
	left   int // directories that may still be read
	found  cgroups
}

// read reads a directory, which belongs to the container `id`, if that is not empty. Directories that go away meanwhile
// are left out, as containers do that end.
func (r *cgroupReader) read(dir, id string, depth int) error {
	if r.left--; r.left < 0 {
		return fmt.Errorf("%s: more than %d directories are there already", dir, maxCgroups)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if depth == 0 {
			return err
		}
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() || depth == maxDepth {
			continue
		}
		info, err := e.Info()
		if err != nil || number(info).Dev != r.device {
			continue
		}
		of := id
		if own := containerID(e.Name()); own != "" {
			of = own
		}
		if of != "" {
			r.found[number(info).Ino] = of
		}
		if err := r.read(filepath.Join(dir, e.Name()), of, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func number(info os.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// containerID returns the id in the name of a container's cgroup, or nothing. With the driver cgroupfs of a runtime,
// the name is the id, or crio-<id>; with systemd, it is such as cri-containerd-<id>.scope, docker-<id>.scope or
// crio-<id>.scope. The cgroup of conmon, which watches a container, is not the container's.
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	if len(name) < idLength || strings.Contains(name, "conmon") {
		return ""
	}
	prefix, id := name[:len(name)-idLength], name[len(name)-idLength:]
	if prefix != "" && !strings.HasSuffix(prefix, "-") && !strings.HasSuffix(prefix, ":") {
		return ""
	}
	if strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// addInodes adds the listed containers by the inodes of their cgroups. It reads cgroups at the start, and then only
// when a sender's inode is not known: nothing is read for senders that say the id.
func (p *Pods) addInodes(all index) {
	if p.CgroupDir == "" {
		return
	}
	if p.cgroups == nil || p.seeksInode() {
		found, err := readCgroups(p.CgroupDir)
		if len(found) > 0 || err == nil {
			p.cgroups = found
		}
		p.reads.WithLabelValues(outcome(err)).Inc()
		if (err != nil) != p.blind {
			p.blind = err != nil
			if p.blind {
				p.Logger.Error("cgroups cannot be read: senders that say only the inode of their cgroup may have no "+
					"labels of pods", "error", err)
			} else {
				p.Logger.Info("cgroups can be read again")
			}
		}
	}
	for inode, id := range p.cgroups {
		if pod := all[id]; pod != nil {
			all[byInode+strconv.FormatUint(inode, 10)] = pod
		}
	}
}
