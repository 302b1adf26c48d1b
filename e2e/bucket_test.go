package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

// bucketStore is rclone's server of the protocol of S3, with one bucket called metrics. It checks the signature of each
// request.
type bucketStore struct {
	*s3mem.Backend
	url  string
	hold atomic.Bool   // chunks do not come to their end
	held chan struct{} // has one for each chunk that was held
}

const storeSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY" // as AWS' manual has it

func startStore(t *testing.T) *bucketStore {
	t.Helper()
	s := &bucketStore{Backend: s3mem.New(), held: make(chan struct{}, 100)}
	if err := s.CreateBucket(t.Context(), "metrics"); err != nil {
		t.Fatal(err)
	}
	speaks := gofakes3.New(s.Backend, gofakes3.WithV4Auth(map[string]string{"key": storeSecret})).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hold.Load() || !strings.Contains(r.URL.Path, "/chunks/") {
			speaks.ServeHTTP(w, r)
			return
		}
		fmt.Fprint(w, "the beginning")
		_ = http.NewResponseController(w).Flush() // fails only if the client has left
		s.held <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// upload puts the files of a block into the bucket. Like Thanos, it puts meta.json last, or not at all if the upload
// breaks off.
func (s *bucketStore) upload(t *testing.T, block string, breaksOff bool) {
	t.Helper()
	put := func(name string) error {
		text, err := os.ReadFile(filepath.Join(block, name))
		if err == nil {
			_, err = s.PutObject(t.Context(), "metrics", "team/"+filepath.Base(block)+"/"+name, nil, bytes.NewReader(text),
				int64(len(text)))
		}
		return err
	}
	err := fs.WalkDir(os.DirFS(block), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "meta.json" {
			return err
		}
		return put(name)
	})
	if err == nil && !breaksOff {
		err = put("meta.json")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// withStore returns a command that finds credentials of a store in its environment, and none elsewhere.
func withStore(t *testing.T, secret string, args ...string) *exec.Cmd {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	cmd := exec.CommandContext(t.Context(), freshet, args...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY="+secret, "AWS_CONFIG_FILE="+none,
		"AWS_SHARED_CREDENTIALS_FILE="+none, "AWS_PROFILE=", "AWS_REGION=", "AWS_DEFAULT_REGION=", "AWS_SESSION_TOKEN=")
	return cmd
}

// Blocks come straight from a bucket of a server that checks signatures. An import that is interrupted in a download
// leaves nothing behind, and the next one goes on. A block that is being uploaded comes along once it is whole.
func TestImportFromABucket(t *testing.T) {
	t.Parallel()
	const series = 500
	source := t.TempDir()
	for b := range 3 {
		oldBlock(t, source, 2*b, series)
	}
	found, err := filepath.Glob(filepath.Join(source, "01*"))
	if err != nil || len(found) != 3 {
		t.Fatalf("wrote the blocks %q: %v", found, err)
	}
	store := startStore(t)
	for i, block := range found {
		store.upload(t, block, i == 2)
	}
	p, work := start(t, dataDir(t)), t.TempDir()
	args := []string{"import", "tsdb", "s3://metrics/team", "--label", "cluster=eu", "--s3-endpoint", store.url,
		"--work-dir", work, "--server", "http://" + p.HTTP}

	out, err := withStore(t, "wrong"+storeSecret, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SignatureDoesNotMatch") ||
		!strings.Contains(string(out), "see AWS_SECRET_ACCESS_KEY") || strings.Contains(string(out), storeSecret) {
		t.Errorf("with a wrong secret: %v\n%s", err, out)
	}

	store.hold.Store(true)
	cmd, printed := withStore(t, storeSecret, args...), &output{}
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-store.held:
	case <-time.After(startLimit):
		t.Errorf("no chunk is downloaded:\n%s", printed)
	}
	if parts, err := os.ReadDir(work); err != nil || len(parts) != 1 {
		t.Errorf("in a download, %s has %v, want one directory; %v", work, parts, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(printed.String(), "run the command again to go on") {
		t.Errorf("an interrupted command: %v\n%s", err, printed)
	}
	store.hold.Store(false)

	for _, step := range []struct {
		name  string
		tells []string
		has   float64
	}{
		{"while the third block is uploaded", []string{"Imported 2 blocks with 120000 samples", "; 0 known before",
			"1 block left out without meta.json", filepath.Base(found[2]), "10 series compared"}, 2 * series * 120},
		{"of the third block", []string{"Imported 1 block with 60000 samples", "; 2 known before"}, 3 * series * 120},
	} {
		out, err := withStore(t, storeSecret, args...).CombinedOutput()
		if err != nil {
			t.Errorf("the import %s: %v\n%s", step.name, err, out)
		}
		for _, text := range step.tells {
			if !strings.Contains(string(out), text) {
				t.Errorf("the import %s does not tell %q:\n%s", step.name, text, out)
			}
		}
		if n, err := p.olds(24); err != nil || n != step.has {
			t.Errorf("the server has %v samples after the import %s, want %v; %v", n, step.name, step.has, err)
		}
		if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
			t.Errorf("the import %s left %v, %v", step.name, left, err)
		}
		store.upload(t, found[2], false)
	}
}
