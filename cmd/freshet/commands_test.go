package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// withoutJSON lists the commands that need no --json, each with the reason.
var withoutJSON = map[string]string{
	"freshet serve":          "says what programs need in listening.json",
	"freshet completion":     "prints a script",
	"freshet health":         "is for its exit code; /-/ready has the same words for programs",
	"freshet help":           "prints text for people",
	"freshet bench":          "names what can be measured",
	"freshet cluster":        "names what can be done",
	"freshet convert":        "names what can be converted",
	"freshet import":         "names what can be imported",
	"freshet cluster secret": "prints a secret for a file",

	"freshet cluster recover": "asks a question, and says what to do next",
	"freshet cluster skip":    "says what is in an entry for people, and what to do next",
	"freshet cluster drain":   "says how long; the exit code says whether the node is drained",
	"freshet cluster remove":  "says what to do next; the exit code says whether the node is removed",
	"freshet cluster replace": "says what to do next; the exit code says whether the node may be replaced",
	"freshet cluster undrain": "the exit code says whether the node is undrained",

	"freshet rules check": "says that files are fine, or what is wrong with them, one mistake a line",
}

// commands returns every command that can be run, including subcommands.
func commands(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		if c != root && c.Runnable() && !c.Hidden {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if len(all) < 5 {
		t.Fatalf("found only %d commands", len(all))
	}
	return all
}

// Each command has all that users may expect of a command. If a new command lacks something, the test
// says what.
func TestCommandsKeepTheRules(t *testing.T) {
	for _, c := range commands(t) {
		name := c.CommandPath()
		need := func(ok bool, what string) {
			t.Helper()
			if !ok {
				t.Errorf("%s: %s", name, what)
			}
		}
		need(c.Short != "" && !strings.HasSuffix(c.Short, "."), "Short must be a phrase without a full stop")
		need(len(c.Short) <= 80, "Short must fit a line of 80 columns")
		if c.Parent() == c.Root() {
			need(c.GroupID != "" || c.Name() == "help", "needs a group: add it by addGroup in main.go")
		}
		if c.Name() != "help" {
			need(c.Long != "", "needs a Long: what it does, and what a reader cannot guess")
			need(c.Example != "", "needs an Example")
		}
		json := c.Flags().Lookup("json")
		_, excused := withoutJSON[name]
		need(json != nil || excused, "needs --json, or a reason in withoutJSON")
		need(json == nil || json.Value.Type() == "bool", "--json must be a bool")
		c.Flags().VisitAll(func(f *pflag.Flag) {
			need(f.Usage != "", "--"+f.Name+" needs a help text")
		})
		for line := range strings.Lines(c.Long) {
			need(len(strings.TrimRight(line, "\n")) <= 90, "Long must fit 90 columns: "+line)
		}
	}
	for name := range withoutJSON {
		need := slices.ContainsFunc(commands(t), func(c *cobra.Command) bool { return c.CommandPath() == name })
		if !need {
			t.Errorf("withoutJSON has %s, which is no command", name)
		}
	}
}

// Freshet accepts every line of a command's Example that begins with freshet.
func TestExamplesAreTaken(t *testing.T) {
	all := append(commands(t), newRootCommand())
	for _, c := range all {
		for line := range strings.Lines(c.Example) {
			words, ok := example(line)
			if !ok {
				continue
			}
			root := newRootCommand()
			root.InitDefaultHelpCmd()
			found, rest, err := root.Find(words)
			if err == nil {
				found.InitDefaultHelpFlag()
				err = found.ParseFlags(rest)
			}
			if err == nil && found.Runnable() {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err == nil {
				err = found.ValidateRequiredFlags()
			}
			if err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	}
}

var (
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	// behind is a pattern that matches the rest of a line after the command: a remark, a pipe or a
	// redirection.
	behind = regexp.MustCompile(`( {3,}| \| | > | >> | && |;).*$`)
	inside = regexp.MustCompile(`<\((freshet [^)]*)\)`)
)

// example returns the words that follow freshet in a line of an Example. `ok` is false if the line does
// not call freshet.
func example(line string) (words []string, ok bool) {
	line = strings.TrimSpace(line)
	if found := inside.FindStringSubmatch(line); found != nil {
		line = found[1]
	}
	line, ok = strings.CutPrefix(behind.ReplaceAllString(line, ""), "freshet")
	for _, w := range shellWord.FindAllString(line, -1) {
		words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(w))
	}
	return words, ok
}

// Output to a pipe has no colours and no control sequences, since only terminals understand them.
func TestNoColoursInPipes(t *testing.T) {
	for _, c := range commands(t) {
		_, stdout, stderr := freshet(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if strings.Contains(stdout+stderr, "\x1b") {
			t.Errorf("%s --help has control sequences", c.CommandPath())
		}
	}
}

func TestHelp(t *testing.T) {
	_, help, _ := freshet(t, "help")
	for _, want := range []string{"Run a server:", "Ask it:", "Examples:", "exit-codes"} {
		if !strings.Contains(help, want) {
			t.Errorf("help does not have %q:\n%s", want, help)
		}
	}
	if code, page, _ := freshet(t, "help", "exit-codes"); code != command.OK ||
		!strings.Contains(page, "mistake on the command line") {
		t.Errorf("exit code %d, %s", code, page)
	}
}

// JSON output contains no control characters either, whatever a label contains.
func TestJSONSteersNoTerminal(t *testing.T) {
	const hostile = "x\u009b2Jy\x7f\u202ez"
	var b bytes.Buffer
	if err := capture.NewWriter(&b).Write(&capture.Datagram{Data: []byte("a:1|c|#" + hostile)}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "c.capture")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"query", "up"}, {"events"}, {"ledger"}, {"top", "--once"}, {"config"}, {"diff", os.DevNull}, {"tail"}, {"backup"},
		{"explain", "a:1|c|#" + hostile}, {"explain", "a:1|c|#" + hostile, "--offline"}, {"replay", file, "--print"},
	} {
		answer := `{"status":"success","data":{"problems":["` + hostile + `"]}}`
		switch args[0] {
		case "tail":
			answer = `{"line":"` + hostile + `"}`
		case "backup":
			answer = `{"path":"` + hostile + `"}`
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer)
		}))
		defer server.Close()
		args = append(args, "--json")
		if command, _, err := newRootCommand().Find(args); err == nil && command.Flags().Lookup("server") != nil {
			args = append(args, "--server", server.URL)
		}
		_, stdout, stderr := freshet(t, args...)
		if strings.ContainsAny(stdout, "\u009b\x7f\u202e") || !strings.Contains(stdout, `x\u009b2Jy\u007f\u202ez`) {
			t.Errorf("%v: output %q, errors %q, want escapes", args, stdout, stderr)
		}
	}
}
