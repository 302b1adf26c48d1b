package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// The manual is README.md and docs/. Its blocks of code are fenced, and the word behind the fence says what a block is
// and so how tests check it, see checks. A comment above a block changes that:
//
//	<!-- not run: why -->    the commands are not run. A test that is named runs them elsewhere, and exists.
//	<!-- file: NAME -->      the block is that file for the commands of its page.

// block is a block of code of the manual.
type block struct {
	page   string // path from the root of the repository
	line   int    // of the fence
	kind   string // the words behind the fence
	text   string
	notRun string // why its commands are not run
	file   string // name of the file that it is
}

func (b *block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var (
	fenced   = regexp.MustCompile("(?ms)^((?:<!--[^\n]*-->\n)*)```([^\n]*)\n(.*?)^```$")
	remark   = regexp.MustCompile(`<!-- (not run|file): (.+?) -->`)
	testName = regexp.MustCompile(`\bTest\w+`)
)

// manual returns all blocks of the manual by page, in the order of the page. commands.md is left out: it is the
// output of the commands.
func manual(t *testing.T) (pages []string, blocks map[string][]*block) {
	t.Helper()
	pages = []string{"README.md"}
	check(t, filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") && path != "../docs/commands.md" {
			pages = append(pages, strings.TrimPrefix(path, "../"))
		}
		return err
	}))
	blocks = map[string][]*block{}
	for _, page := range pages {
		blocks[page] = blocksOf(page, readFile(t, "../"+page))
	}
	return pages, blocks
}

func blocksOf(page, text string) (all []*block) {
	for _, at := range fenced.FindAllStringSubmatchIndex(text, -1) {
		b := &block{page: page, line: 1 + strings.Count(text[:at[4]], "\n"), kind: text[at[4]:at[5]], text: text[at[6]:at[7]]}
		for _, m := range remark.FindAllStringSubmatch(text[at[2]:at[3]], -1) {
			if m[1] == "file" {
				b.file = m[2]
			} else {
				b.notRun = m[2]
			}
		}
		all = append(all, b)
	}
	return all
}

// shown returns the first block of a kind on a page.
func shown(t *testing.T, page, kind string) string {
	t.Helper()
	for _, b := range blocksOf(page, readFile(t, "../"+page)) {
		if b.kind == kind {
			return b.text
		}
	}
	t.Fatalf("%s has no block of %s", page, kind)
	return ""
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return string(text)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checks are the kinds of blocks that are not commands, with the check of each. dir has the files of the page.
var checks = map[string]func(dir string, b *block) error{
	"text":   nil, // nothing that a program reads or prints, such as a grammar
	"output": nil, // of the commands above; TestManualRuns compares it if they are run
	"dogstatsd": func(_ string, b *block) error {
		var p dogstatsd.Parser
		for p.Reset([]byte(b.text)); p.Next() != dogstatsd.End; {
		}
		for why, n := range p.Malformed {
			if n > 0 {
				return fmt.Errorf("%d lines are malformed: %v", n, dogstatsd.Reason(why))
			}
		}
		if p.UnknownFields+p.BadFields > 0 {
			return fmt.Errorf("%d fields are unknown, and %d are not valid", p.UnknownFields, p.BadFields)
		}
		return nil
	},
	"yaml":         freshetCheck,
	"yaml freshet": freshetCheck,
	"yaml rules": func(dir string, b *block) error {
		return program(dir, b, ".cache/promtool", "check", "rules", "/dev/stdin")
	},
	"yaml prometheus": func(_ string, b *block) error {
		_, err := config.Load(b.text, promslog.NewNopLogger())
		return err
	},
	"toml": func(dir string, b *block) error {
		file := filepath.Join(dir, "telegraf.conf")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			return err
		}
		return program(dir, b, ".cache/telegraf", "config", "check", "--config", file)
	},
	"json": func(_ string, b *block) error {
		var value any
		return json.Unmarshal([]byte(b.text), &value)
	},
	"promql": func(_ string, b *block) error {
		p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableExtendedRangeSelectors: true})
		for line := range strings.Lines(b.text) {
			if _, err := p.ParseExpr(line); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		return nil
	},
}

// checkedBy names, by kind, the test that checks the blocks of a kind that only one page has.
var checkedBy = map[string]string{
	"batch":                "TestExampleOfABatch",
	"capture":              "TestExampleOfACapture",
	"entry":                "TestExampleOfAnEntry",
	"go":                   "TestClientPageShowsTheExample",
	"yaml alertmanager":    "TestRulesNotifyAnAlertmanager",
	"yaml datadog":         "TestMigrationManual",
	"yaml operators":       "TestExampleOfAnOperatorsFile",
	"yaml pod":             "TestPodsOfTheManual",
	"yaml statsd_exporter": "TestMigrationManual",
	"yaml tenants":         "TestExampleOfATenantsFile",
	"yaml values":          "TestValuesOfTheManual",
}

// freshetCheck reads no rule files: the manual names those of an installation.
func freshetCheck(dir string, b *block) error {
	return program(dir, b, freshet, "check", "--no-rules", "-")
}

// program runs a program in the directory of the page. A path is from the root of the repository. It gets the block on
// its standard input.
func program(dir string, b *block, words ...string) error {
	path := words[0]
	if !filepath.IsAbs(path) {
		root, err := filepath.Abs("..")
		if err != nil {
			return err
		}
		path = filepath.Join(root, path)
	}
	cmd := exec.Command(path, words[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(b.text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return nil
}

// writeFiles writes the files that a page shows, and returns their directory.
func writeFiles(t *testing.T, blocks []*block) (dir string) {
	t.Helper()
	dir = dataDir(t)
	for _, b := range blocks {
		if b.file != "" {
			check(t, os.WriteFile(filepath.Join(dir, b.file), []byte(b.text), 0o600))
		}
	}
	return dir
}

// Each block of the manual is what the word behind its fence says. Commands exist, and have the flags that a block
// gives them, whether it is run or not.
func TestManualIsValid(t *testing.T) {
	t.Parallel()
	pages, blocks := manual(t)
	tests := testsOfTheTree(t)
	commands, run, elsewhere := 0, 0, 0
	for _, page := range pages {
		dir := writeFiles(t, blocks[page])
		for _, b := range blocks[page] {
			isCommands := b.kind == "sh" || b.kind == "console"
			holds, known := checks[b.kind]
			switch {
			case isCommands:
				commands++
				if b.notRun == "" {
					run++
				} else if testName.MatchString(b.notRun) {
					elsewhere++
				}
				if err := flagsExist(b); err != nil {
					t.Errorf("%s: %v", b, err)
				}
			case checkedBy[b.kind] != "":
				if !tests[checkedBy[b.kind]] {
					t.Errorf("%s: no test %s checks blocks of %s", b, checkedBy[b.kind], b.kind)
				}
			case !known && b.notRun == "":
				t.Errorf("%s: %q is no kind of block; use one of checks or checkedBy, or say above it why it is not run", b, b.kind)
			case holds != nil:
				if err := holds(dir, b); err != nil {
					t.Errorf("%s: %v", b, err)
				}
			}
			if b.notRun != "" && !isCommands && known {
				t.Errorf("%s: a block of %s is not run anyway", b, b.kind)
			}
			for _, name := range testName.FindAllString(b.notRun, -1) {
				if !tests[name] {
					t.Errorf("%s: no test is called %s", b, name)
				}
			}
		}
	}
	t.Logf("of %d blocks of commands, %d are run, and other tests run %d; all flags exist", commands, run, elsewhere)
	if commands < 40 || run+elsewhere < commands/2 {
		t.Errorf("of %d blocks of commands, tests run only %d", commands, run+elsewhere)
	}
}

// Blocks of code have fences. An indented one could not say what it is.
func TestBlocksOfTheManualAreFenced(t *testing.T) {
	t.Parallel()
	indented := regexp.MustCompile("(?m)^\n {4}.*|^ +```.*") // a fence that is indented is found by no test
	pages, _ := manual(t)
	for _, page := range pages {
		if strings.HasPrefix(page, "docs/format/") || strings.HasPrefix(page, "docs/decisions/") { // drawings and grammars
			continue
		}
		for _, found := range indented.FindAllString(fenced.ReplaceAllString(readFile(t, "../"+page), ""), -1) {
			t.Errorf("%s: put a fence around the block that begins with %s", page, strings.TrimSpace(found))
		}
	}
}

// testsOfTheTree returns the names of all tests in the repository.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{"deploy", "docs", "e2e", "release", "internal"} {
		check(t, filepath.WalkDir("../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, m := range test.FindAllStringSubmatch(readFile(t, path), -1) {
				names[m[1]] = true
			}
			return nil
		}))
	}
	return names
}

// The examples of commands.md have flags that exist.
func TestExamplesOfCommandsExist(t *testing.T) {
	t.Parallel()
	examples := regexp.MustCompile(`(?m)^ {2,}freshet .*`).FindAllString(readFile(t, "../docs/commands.md"), -1)
	usage := regexp.MustCompile(`[\[<]|\.\.\.|\b[A-Z]{2,}\b`) // a form, not an example
	n := 0
	for _, text := range examples {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "  ") // two spaces begin an explanation
		if usage.MatchString(text) {
			continue
		}
		n++
		if err := flagsExist(&block{kind: "sh", text: text}); err != nil {
			t.Errorf("commands.md: %v", err)
		}
	}
	if n < 10 {
		t.Errorf("found only %d examples", n)
	}
}

// flagsExist checks the calls of freshet in a block: with --help added, each has to print the help of its command.
func flagsExist(b *block) (err error) {
	for _, words := range simpleCommands(b) {
		words = freshetCall(words)
		if words == nil {
			continue
		}
		at := slices.Index(words, "--")
		if at < 0 {
			at = len(words)
		}
		said, failed := exec.Command(freshet, slices.Insert(slices.Clone(words), at, "--help")...).CombinedOutput()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("freshet %s: %w\n%s", strings.Join(words, " "), failed, said))
			continue
		}
		// The help of a command with subcommands comes for a wrong subcommand, too.
		form := regexp.MustCompile(`(?m)^  freshet ([a-z -]*)\[command\]`).FindSubmatch(said)
		if form == nil {
			continue
		}
		if n := len(strings.Fields(string(form[1]))); len(words) > n && !strings.HasPrefix(words[n], "-") {
			err = errors.Join(err, fmt.Errorf("freshet %s: no such command", strings.Join(words, " ")))
		}
	}
	return err
}

// freshetCall returns the arguments of a call of freshet, or nil for another program.
func freshetCall(words []string) []string {
	for _, prefix := range [][]string{{"sudo"}, {"runuser", "-u", "freshet", "--"}, {"docker", "exec", "freshet"}} {
		if len(words) > len(prefix) && slices.Equal(words[:len(prefix)], prefix) {
			words = words[len(prefix):]
		}
	}
	if len(words) < 2 || words[0] != "freshet" && words[0] != "./bin/freshet" {
		return nil
	}
	return slices.DeleteFunc(words[1:], func(w string) bool { return w == "..." })
}

// simpleCommands splits the commands of a block into words, as a shell does, without redirections and comments. It
// knows what the manual uses, which is little.
func simpleCommands(b *block) (all [][]string) {
	text := b.text
	if b.kind == "console" {
		text = ""
		for _, step := range steps(b) {
			text += step.command + "\n"
		}
	}
	token := regexp.MustCompile(`\\\n|[ \t]+|#[^\n]*|[\n;|&()]+|\d*>+ *\S+|((?:'[^']*'|"[^"]*"|[^\s;|&()>'"\\])+)|.`)
	var words []string
	for _, m := range token.FindAllStringSubmatchIndex(text, -1) {
		whole := text[m[0]:m[1]]
		switch {
		case m[2] >= 0:
			words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(whole))
		case strings.ContainsAny(whole[:1], "\n;|&()"):
			all, words = append(all, words), nil
		}
	}
	return append(all, words)
}
