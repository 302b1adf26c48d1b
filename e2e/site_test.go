package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSite opens the manual as a site in a real browser: both widths, both themes, axe, and its search, with and
// without a server. The checks are in ui/test.
func TestSite(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	build := exec.Command("go", "run", "-C", "../release", "./site", "-out", dir)
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the site: %v\n%s", err, out)
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	screenshots, err := filepath.Abs(filepath.Join("..", ".cache", "screenshots"))
	check(t, err)
	check(t, os.MkdirAll(screenshots, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "test/site.test.mjs")
	cmd.Dir = filepath.Join("..", "ui")
	cmd.Env = append(os.Environ(), "FRESHET="+s.URL, "SITE="+dir, "UI_SCREENSHOTS="+screenshots)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	check(t, err)
}
