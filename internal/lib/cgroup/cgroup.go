// Package cgroup reads the limits that the kernel's control groups, version 1 and 2, set for
// this process: cgroups(7).
package cgroup

import (
	"bufio"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Group is a cgroup that limits the process.
type Group struct {
	Dir     string // below the root of the file system, without a slash at the front
	Version int    // 1 or 2
}

// Of returns the cgroups that limit the process for a controller: the process's own cgroups first, then
// their parents. `root` is the root of the file system. In a container, /proc/self/cgroup may have the
// path on the host, but the container sees only the end of this path. So Of also returns each shorter
// path, and a returned directory need not exist.
func Of(root fs.FS, controller string) (found []Group, err error) {
	file, err := root.Open("proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 3) // number, controllers, path
		if len(fields) != 3 {
			continue
		}
		var mounts []string
		version := 1
		switch {
		case fields[0] == "0" && fields[1] == "":
			mounts, version = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, 2
		case slices.Contains(strings.Split(fields[1], ","), controller):
			mounts = []string{"sys/fs/cgroup/" + controller}
			if _, err := fs.Stat(root, mounts[0]); err != nil { // usually a link to the one named after all controllers
				mounts[0] = "sys/fs/cgroup/" + fields[1]
			}
		}
		for _, mount := range mounts {
			for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
				found = append(found, Group{mount + strings.TrimSuffix(at, "/"), version})
				if at == "/" {
					break
				}
			}
		}
	}
	return found, lines.Err()
}

// Number returns the number in a file of a cgroup. It returns false if the file has no number: "max",
// for example, means no limit.
func (g Group) Number(root fs.FS, file string) (int64, bool) {
	text, err := fs.ReadFile(root, g.Dir+"/"+file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
