package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestCompletionScripts(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_freshet", "zsh": "#compdef freshet",
		"fish": "complete -c freshet"} {
		code, script, stderr := freshet(t, "completion", shell)
		if code != command.OK || !strings.Contains(script, mark) {
			t.Errorf("%s: exit code %d and a script of %d bytes, want 0 and a script with %q; errors %q",
				shell, code, len(script), mark, stderr)
		}
	}
	if code, _, stderr := freshet(t, "completion", "powershell"); code != command.Usage ||
		!strings.Contains(stderr, "powershell") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// A real bash loads the script and completes with it.
func TestCompletionInBash(t *testing.T) {
	bin := t.TempDir()
	command := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asCommand, os.Args[0])
	if err := os.WriteFile(filepath.Join(bin, "freshet"), []byte(command), 0o755); err != nil {
		t.Fatal(err)
	}
	// The package bash-completion is not loaded. compopt works only at a prompt, so the test replaces
	// it. At a prompt, bash also splits words at : and =.
	const complete = `
compopt() { :; }
source <(freshet completion bash) || exit 1
COMP_LINE="freshet $1" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
IFS=$' :=' COMP_WORDS=($COMP_LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) IFS=$' \t\n'
__start_freshet
printf '%s\n' "${COMPREPLY[@]}"`
	server := metrics(t, `["page_size","page_views"]`)
	for line, want := range map[string]string{
		"qu":                                     "queries query",
		"completion ":                            "bash zsh fish",
		"completion f":                           "fish",
		"query --ra":                             "--range",
		"query --server=" + server + " pa":       "page_size page_views",
		"query --server=http://127.0.0.1:1 some": "", // without a server there are no names, and no wait
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "-c", complete, "bash", line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != want {
			t.Errorf("freshet %s<TAB>: error %v, completions %q, want %q", line, err, got, want)
		}
	}
}

// metrics starts a server that answers requests for metric names that begin with pa.
func metrics(t *testing.T, names string) (server string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/label/__name__/values" || r.FormValue("match[]") != `{__name__=~"pa.*"}` {
			t.Errorf("the completion requested %s, want the names that begin with pa", r.URL)
		}
		fmt.Fprintf(w, `{"status":"success","data":%s}`, names)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
