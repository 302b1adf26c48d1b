package peerstsdb

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The versions on the page are the versions that the modules pin.
func TestVersions(t *testing.T) {
	for _, p := range All() {
		text, err := os.ReadFile(filepath.Join(p.folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		module, _, _ := strings.Cut(p.pkg, map[bool]string{true: "/cmd/", false: "/app/"}[strings.Contains(p.pkg, "/cmd/")])
		if !strings.Contains(string(text), "\t"+module+" "+p.Version+" ") ||
			!strings.Contains(string(text), "tool "+p.pkg+"\n") {
			t.Errorf("%s/go.mod does not pin %s %s", p.folder, module, p.Version)
		}
	}
}

// Each peer's command line contains its address and the directory for its files.
func TestCommands(t *testing.T) {
	for _, p := range All() {
		at := place{program: "/program", dir: t.TempDir(), address: "127.0.0.1:18428"}
		command, err := p.command(at)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(command, "\n"); command[0] != "/program" || !strings.Contains(text, at.dir) ||
			!strings.Contains(text, at.address) {
			t.Errorf("%s: %q", p.Name, command)
		}
	}
}

// More flags follow those that a peer always has, and leave the peer itself as it is.
func TestMoreFlags(t *testing.T) {
	at := place{program: "/program", dir: t.TempDir(), address: "127.0.0.1:18428"}
	plain, err := prometheus.command(at)
	if err != nil {
		t.Fatal(err)
	}
	more := prometheus.With("Another", "--more")
	command, err := more.command(at)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(plain, "--more"); more.Name != "Another" || !slices.Equal(command, want) {
		t.Errorf("%s is started with %q, want %q", more.Name, command, want)
	}
	if again, err := prometheus.command(at); err != nil || prometheus.Name != "Prometheus" || !slices.Equal(again, plain) {
		t.Errorf("%s is now started with %q (%v), want %q", prometheus.Name, again, err, plain)
	}
}

func TestStartOfAPeerThatIsNotBuilt(t *testing.T) {
	p := prometheus
	if p.Built(t.TempDir()) {
		t.Error("Built reports true for an empty directory")
	}
	if _, err := p.Start(t.Context(), t.TempDir(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "start Prometheus v0.315.0") {
		t.Errorf("for a peer that is not built, Start returned the error %v, want one that names the peer", err)
	}
}

// If a peer does not start, the error contains the peer's output.
func TestAFailedStartShowsThePeersOutput(t *testing.T) {
	p := Peer{Name: "it", Version: "v1", command: func(place) ([]string, error) {
		return []string{"sh", "-c", "echo no such setting; exit 3"}, nil
	}}
	_, err := p.Start(t.Context(), t.TempDir(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such setting") {
		t.Errorf("the error lacks the peer's output: %v", err)
	}
}
