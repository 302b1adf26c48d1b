package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct {
		why, comm, cgroup string
		want              Process
	}{
		{"Docker with systemd", "python3\n", "0::/system.slice/docker-" + id + ".scope\n", Process{"python3", id}},
		{"Kubernetes, cgroup v1", "java\n", "12:pids:/kubepods/burstable/pod9/" + id + "\n1:name=systemd:/x\n",
			Process{"java", id}},
		{"no container", "bash\n", "0::/user.slice/user-1000.slice\n", Process{"bash", ""}},
		{"a process that has ended", "", "", Process{}},
	} {
		t.Run(test.why, func(t *testing.T) {
			proc := t.TempDir()
			if test.comm != "" {
				if err := os.MkdirAll(filepath.Join(proc, "7"), 0o755); err != nil {
					t.Fatal(err)
				}
				for name, text := range map[string]string{"comm": test.comm, "cgroup": test.cgroup} {
					if err := os.WriteFile(filepath.Join(proc, "7", name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := find(proc, 7); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if Find(int32(os.Getpid())).Command == "" {
		t.Error("Find returned no command for this process")
	}
}
