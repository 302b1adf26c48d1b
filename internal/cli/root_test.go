package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"a misspelt command", []string{"qurey"}, command.Usage,
			"freshet: unknown command: qurey; did you mean freshet query?\n"},
		{"an unknown command", []string{"frobnicate"}, command.Usage,
			"freshet: unknown command: frobnicate; see freshet help\n"},
		{"a misspelt flag", []string{"query", "--rnage", "1h", "up"}, command.Usage,
			"freshet: unknown flag: --rnage; did you mean --range?\n"},
		{"a flag by its old name", []string{"config", "--ingest-max-body", "1MiB"}, command.Usage,
			"freshet: --ingest-max-body: was renamed: say --distributor-max-body\n"},
		{"a former flag of another command", []string{"version", "--ingest-max-body", "1MiB"}, command.Usage,
			"freshet: unknown flag: --ingest-max-body; see freshet version --help\n"},
		{"an unknown flag", []string{"version", "--frobnicate"}, command.Usage,
			"freshet: unknown flag: --frobnicate; see freshet version --help\n"},
		{"a word too many", []string{"version", "now"}, command.Usage,
			"freshet: freshet version takes no arguments, only flags; got \"now\"; see freshet version --help\n"},
		{"no file", []string{"check"}, command.Usage,
			"freshet: freshet check got 0 words; write freshet check freshet.yaml, or - for standard input\n"},
		{"no snapshot", []string{"restore", "--data-dir", "new"}, command.Usage,
			"freshet: freshet restore got 0 words; write freshet restore SNAPSHOT --data-dir NEW\n"},
		{"nowhere to restore to", []string{"restore", "old"}, command.Usage,
			"freshet: restore needs an empty directory, or the name of a new one; write freshet restore " +
				"SNAPSHOT --data-dir NEW\n"},
		{"a shell that is not known", []string{"completion", "tcsh"}, command.Usage,
			"freshet: completion takes the name of one shell: bash, zsh or fish; got \"tcsh\"\n"},
		{"a flag that is no whole number", []string{"top", "--limit", "x"}, command.Usage,
			"freshet: --limit = x: must be a whole number\n"},
		{"one that is negative", []string{"capture", "--datagrams", "-1"}, command.Usage,
			"freshet: --datagrams = -1: must be a whole number of 0 or more\n"},
		{"one that is no number", []string{"tail", "--sample", "x"}, command.Usage,
			"freshet: --sample = x: must be a number\n"},
		{"one that is too large", []string{"tail", "--pid", "4294967296"}, command.Usage,
			"freshet: --pid = 4294967296: must be a whole number that is not as large\n"},
		{"help of no command", []string{"help", "qurey"}, command.Usage,
			"freshet: unknown command: qurey; did you mean freshet query?\n"},
		{"help", []string{"help"}, command.OK, ""},
		{"help of a command", []string{"help", "query"}, command.OK, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := freshet(t, tt.args...)
			if code != tt.code || stderr != tt.stderr {
				t.Errorf("exit code %d, %q\nwant      %d, %q", code, stderr, tt.code, tt.stderr)
			}
			if help := tt.args[0] == "help" && tt.code == command.OK; help != strings.Contains(stdout, "Examples:") {
				t.Errorf("printed %q", stdout)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	build.Version = "v1.2.3" // main sets this variable in the same way
	defer func() { build.Version = "" }()
	for _, ask := range []string{"version", "--version", "-v"} {
		if code, stdout, _ := freshet(t, ask); code != command.OK || !strings.HasPrefix(stdout, "freshet v1.2.3 ") ||
			!strings.Contains(stdout, " go1.") || strings.Count(stdout, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", ask, code, stdout)
		}
	}
	code, stdout, _ := freshet(t, "version", "--json")
	var b build.Info
	if err := json.Unmarshal([]byte(stdout), &b); code != command.OK || err != nil || b != build.This() {
		t.Errorf("version --json: exit code %d, stdout %q, error %v", code, stdout, err)
	}
}
