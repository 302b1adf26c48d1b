package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// invoke runs freshet and returns its exit code, standard output and standard error.
func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), freshet, args...)
	var out, notes strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), notes.String()
}

// Before a reload, an operator can check a file, print the configuration in force, and see what the
// reload would change. Settings from flags do not count as changes. The comparison with the file in
// force shows no change.
func TestConfigurationTools(t *testing.T) {
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("mapping:\n  rules:\n  - {match: a.*, name: a}\nquery: {timeout: 1m}\n")
	p := start(t, dir, "--config", file, "--log-level", "warn")

	if code, stdout, stderr := invoke(t, "check", file); code != 0 ||
		stdout != file+": ok: 3 DogStatsD sockets, 1 mapping rule\n" {
		t.Errorf("check of a good file: exit code %d, output %q, errors %q; want 0 and ok", code, stdout, stderr)
	}
	code, running, stderr := invoke(t, "config", "--server", p.HTTP)
	for _, line := range []string{"# Set by --log-level; default info\nlog_level: warn\n",
		"  # Set by " + file + ":4; default 2m\n  timeout: 1m\n"} {
		if code != 0 || !strings.Contains(running, line) {
			t.Errorf("config: exit code %d, want 0 and the text %q in\n%s%s", code, line, running, stderr)
		}
	}
	diff := func() (int, string, string) { return invoke(t, "diff", file, "--server", p.HTTP) }
	if code, stdout, stderr := diff(); code != 0 || stdout != "" || stderr != "nothing would change\n" {
		t.Errorf("diff with the file in force: exit code %d, output %q, errors %q; want 0 and no change",
			code, stdout, stderr)
	}
	write(running)
	if code, stdout, stderr := diff(); code != 0 || stdout != "" {
		t.Errorf("diff with the output of config: exit code %d, output %q, errors %q; want 0 and no change",
			code, stdout, stderr)
	}
	write("log_level: debug\nmapping:\n  rules:\n  - {match: a.*, name: b}\n  - {match: c}\n")
	want := "mapping.rules[0].name: a -> b  (on reload)\nmapping.rules[1]: added {match: c}  (on reload)\n" +
		"query.timeout: 1m -> 2m  (needs a restart)\n"
	if code, stdout, stderr := diff(); code != 1 || stdout != want {
		t.Errorf("diff with another file: exit code %d, output %q, errors %q\nwant 1, %q", code, stdout, stderr, want)
	}
	write("maping: {}\n")
	wrong := file + ":1: maping: is not a key; did you mean mapping?\n"
	if code, stdout, stderr := diff(); code != 2 || stdout != "" || stderr != "freshet: "+wrong {
		t.Errorf("diff with an invalid file: exit code %d, output %q, errors %q; want 2 and %q", code, stdout, stderr, wrong)
	}
	if code, stdout, stderr := invoke(t, "check", file); code != 2 || stdout != "" ||
		!strings.HasSuffix(stderr, "  "+wrong) {
		t.Errorf("check of a bad file: exit code %d, output %q, errors %q; want 2 and %q", code, stdout, stderr, wrong)
	}
}
