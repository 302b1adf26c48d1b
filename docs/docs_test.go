// Package docs_test checks the manual against the code: links have targets; configuration.md lists the
// keys of the binary; the examples of configurations, of tenants files and of bytes on disk are valid;
// and ci.md has the budgets of CI.
package docs_test

import (
	"encoding/hex"
	"flag"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/settings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// Each link to a file, or to a heading in a file, has a target.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			to, err := url.Parse(found[1])
			if err != nil {
				t.Errorf("%s: link %s: %v", page, found[1], err)
				continue
			}
			if to.Scheme != "" {
				continue
			}
			target := page
			if to.Path != "" {
				target = filepath.Join(filepath.Dir(page), to.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", page, found[1], err)
				continue
			}
			if to.Fragment != "" && !slices.Contains(anchors(read(t, target)), to.Fragment) {
				t.Errorf("%s: the link %s names a heading that does not exist", page, found[1])
			}
		}
	}
}

// pages returns the paths of all Markdown files of the repository.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchors returns the names that GitHub gives to the headings of a text.
func anchors(text string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := drop.ReplaceAllString(strings.ToLower(h[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

//go:generate go test . -run TestConfigurationReference -update
var update = flag.Bool("update", false, "rewrite the lists of keys in configuration.md")

const updateCommand = "go generate ./docs"

// binary compiles the program and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "freshet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../cmd/freshet").CombinedOutput(); err !=
		nil {
		t.Fatalf("build freshet: %v\n%s", err, out)
	}
	return path
}

// <!-- keys: dogstatsd --> ... <!-- end -->
var keyList = regexp.MustCompile(`(?s)<!-- keys: (\w+) -->\n.*?<!-- end -->\n`)

// configuration.md lists exactly the keys of the binary, and each of its examples
// is a valid configuration.
func TestConfigurationReference(t *testing.T) {
	freshet := binary(t)
	out, err := exec.CommandContext(t.Context(), freshet, "config", "--reference").Output()
	if err != nil {
		t.Fatalf("run freshet config --reference: %v", err)
	}
	lists := map[string]string{} // by section
	for _, found := range keyList.FindAllStringSubmatch(string(out), -1) {
		lists[found[1]] = found[0]
	}
	if len(lists) < 5 {
		t.Fatalf("found only the lists of %d sections in\n%s", len(lists), out)
	}
	has := read(t, "configuration.md")
	want := keyList.ReplaceAllStringFunc(has, func(list string) string {
		section := keyList.FindStringSubmatch(list)[1]
		defer delete(lists, section)
		return lists[section]
	})
	for section := range lists {
		t.Errorf("configuration.md has no list of %s: add a heading, <!-- keys: %s -->, <!-- end -->, and run: %s",
			section, section, updateCommand)
	}
	if *update {
		if err := os.WriteFile("configuration.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if has != want {
		t.Errorf("the lists of keys in configuration.md differ from the code; run: %s", updateCommand)
	}
	examples := yamlExample.FindAllStringSubmatch(want, -1)
	if len(examples) == 0 {
		t.Error("configuration.md has no example")
	}
	for _, example := range examples {
		check := exec.CommandContext(t.Context(), freshet, "check", "--no-rules", "-")
		check.Stdin = strings.NewReader(example[1])
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("freshet check refuses the example\n%s\n%s", example[1], out)
		}
	}
}

// Paths of installed files are those of the packages.
func TestPathsOfPackages(t *testing.T) {
	const doc = "/usr/share/doc/freshet/"
	packages := read(t, "../release/packages.go")
	if !strings.Contains(packages, `const doc = "`+doc+`"`) {
		t.Fatalf("the packages have no directory %s", doc)
	}
	paths := regexp.MustCompile(`/usr/share/[\w./-]*freshet/[\w.-]+(/[\w.-]+)*`)
	found := 0
	for _, page := range pages(t) {
		for _, path := range paths.FindAllString(read(t, page), -1) {
			found++
			name, is := strings.CutPrefix(path, doc)
			if !is || !strings.Contains(packages, `{path: doc + "`+name) {
				t.Errorf("%s names %s, which no package has", page, path)
			}
		}
	}
	if found == 0 {
		t.Error("no page names such a path")
	}
}

// names.md lists all keys of a rule, since configuration.md leaves them out.
func TestKeysOfRules(t *testing.T) {
	var listed strings.Builder // the first cells of all rows of tables
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`[^|]+) \|`).FindAllStringSubmatch(read(t, "names.md"), -1) {
		listed.WriteString(row[1])
	}
	n := 0
	for _, k := range settings.Schema().Keys() {
		name, is := strings.CutPrefix(k.Path, "mapping.rules[].")
		if !is || strings.HasPrefix(name, "relabel[].") { // these keys are Prometheus' own
			continue
		}
		n++
		if !strings.Contains(listed.String(), "`"+name+"`") {
			t.Errorf("names.md does not list %s", name)
		}
	}
	if n < 10 {
		t.Errorf("found only %d keys of a rule", n)
	}
}

var yamlExample = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// The manual's example of a tenants file is valid. Its hashes belong to tokens that are made as the manual
// says.
func TestExampleOfATenantsFile(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "operations.md"), "\n## Many tenants\n")
	example := regexp.MustCompile("(?ms)^```yaml tenants\n(.*?)^```$").FindStringSubmatch(section)
	if example == nil {
		t.Fatal("operations.md has no example of a tenants file")
	}
	access, err := tenant.ByTokens("operations.md", []byte(example[1]))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]tenant.Grant{
		"token-of-team-a":               {Tenant: "team-a", Read: true, Write: true},
		"token-of-the-agents-of-team-a": {Tenant: "team-a", Write: true, Token: "agents"},
		"token-of-the-wall":             {Tenant: "wall", Read: true},
	} {
		if got, err := access.Grant(tenant.Claim{Token: token}); got != want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", token, got, err, want)
		}
	}
}

// The example of http.operators_file knows the token of Ann, and no tenant's.
func TestExampleOfAnOperatorsFile(t *testing.T) {
	example := regexp.MustCompile("(?ms)^```yaml operators\n(.*?)^```$").FindStringSubmatch(read(t, "operations.md"))
	if example == nil {
		t.Fatal("operations.md has no example of an operators file")
	}
	operators, err := tenant.OperatorsByTokens("operations.md", []byte(example[1]))
	if err != nil {
		t.Fatal(err)
	}
	if !operators.Has("token-of-ann") || operators.Has("token-of-team-a") {
		t.Error("the file has another operator's token than Ann's")
	}
}

// format/batch.md shows, byte by byte, a batch as the code writes it.
func TestExampleOfABatch(t *testing.T) {
	_, example, _ := strings.Cut(read(t, "format/batch.md"), "```batch\n")
	example, _, _ = strings.Cut(example, "```")
	var drawn []string
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(line, "  ") // the rest of the line is a remark
		drawn = append(drawn, strings.Fields(digits)...)
	}
	const second = 1_795_228_020
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "hits", "env", "prod"))
	b := batch.Begin(nil, &batch.Header{
		Tenant: []byte("default"), Shard: series.Shard("default", key), Producer: 1, Incarnation: 2, Sequence: 3,
		Second: second, Birth: second*1e9 + 250e6,
	})
	b = (&batch.Increment{Key: key, Samples: 2, Value: 3}).Append(b, second)
	batch.End(b, 1)
	if got, want := strings.Join(drawn, ""), hex.EncodeToString(b); got != want {
		t.Errorf("the page shows\n%s\nthe code writes\n%s", got, want)
	}
}

// ci.md has the budget of each step, as .ci/run enforces it. The sum of the budgets of steps that run one
// after another does not exceed the bound in ci.md.
func TestBudgetsOfCI(t *testing.T) {
	budgets := regexp.MustCompile(`(?m)^declare -A budget=\((.*)\)$`).FindStringSubmatch(read(t, "../.ci/run"))
	if budgets == nil {
		t.Fatal(".ci/run has no budgets")
	}
	page := read(t, "ci.md")
	seconds := map[string]int{}
	for _, found := range regexp.MustCompile(`\[(\w+)\]=(\d+)`).FindAllStringSubmatch(budgets[1], -1) {
		seconds[found[1]], _ = strconv.Atoi(found[2])
		step := "`make " + found[1] + "`"
		if found[1] == "total" {
			step = "sum"
		}
		row := regexp.MustCompile(`(?m)^\| ` + step + ` \| ([\d,]+) \|`).FindStringSubmatch(page)
		if row == nil || strings.ReplaceAll(row[1], ",", "") != found[2] {
			t.Errorf("the budget of %s in .ci/run is %s s, but ci.md has %q", step, found[2], row)
		}
	}
	bound := regexp.MustCompile(`The bound is (\d+) minutes`).FindStringSubmatch(page)
	if bound == nil {
		t.Fatal("ci.md has no bound")
	}
	minutes, _ := strconv.Atoi(bound[1])
	if sum := seconds["test"] + seconds["race"] + seconds["fuzz"]; sum > seconds["total"] ||
		seconds["lint"] > seconds["total"] || seconds["total"] != 60*minutes {
		t.Errorf("steps may take %d s one after another, and lint %d s, in total %d s; the bound is %d minutes",
			sum, seconds["lint"], seconds["total"], minutes)
	}
}

// needed.txt lists headings and texts that must remain when pages are shortened and rewritten: users
// search for them, and programs and alerts point to them.
func TestNothingThatUsersNeedVanishes(t *testing.T) {
	var manual strings.Builder
	headings := map[string]bool{}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "../docs/decisions/") {
			continue
		}
		text := read(t, page)
		manual.WriteString(text)
		for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			headings[h[1]] = true
		}
	}
	n := 0
	for line := range strings.Lines(read(t, "testdata/needed.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		n++
		if h, is := strings.CutPrefix(line, "## "); is {
			if !headings[h] {
				t.Errorf("no page has the heading %q, which needed.txt lists", h)
			}
		} else if !strings.Contains(manual.String(), line) {
			t.Errorf("no page says %s", line)
		}
	}
	if n < 300 {
		t.Errorf("needed.txt lists only %d entries", n)
	}
}

// proseWidth is the largest width of a line of prose, in characters. A wider link or code span has
// a line of its own.
const proseWidth = 100

// Prose in documents is wrapped at the same width, so that versions are easy to compare.
func TestProseIsWrapped(t *testing.T) {
	for _, page := range pages(t) {
		if page == "../docs/commands.md" { // generated from the output of commands
			continue
		}
		text := generated.ReplaceAllStringFunc(fence.ReplaceAllStringFunc(read(t, page), blank), blank)
		n := 0
		for line := range strings.Lines(text) {
			n++
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) <= proseWidth || unwrapped.MatchString(line) {
				continue
			}
			t.Errorf("%s:%d: the line has %d characters; wrap prose at %d", page, n, utf8.RuneCountInString(line), proseWidth)
		}
	}
}

var (
	generated = regexp.MustCompile(`(?s)<!-- (keys|lab): .*?<!-- end -->`)
	// unwrapped matches lines that may be wider: tables, headings, code, comments, pictures, and
	// single words that cannot be broken.
	unwrapped = regexp.MustCompile("^(\\||#|    |<|!|> )|^\\s*([-*] )?(\\S+|`[^`]+`|\\[[^]]*\\]\\(\\S+)[.,:;)]*$")
)

// blank returns only the line breaks of a text.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }
