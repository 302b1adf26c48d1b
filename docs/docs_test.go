// Package docs_test holds the manual to what it describes: links lead somewhere,
// configuration.md lists the keys and defaults that the binary has, and the
// example of a batch is what the code writes.
package docs_test

import (
	"encoding/hex"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// A link to a file, or to a heading in one, leads there.
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
				t.Errorf("%s: link %s: no such heading", page, found[1])
			}
		}
	}
}

// pages are all Markdown files of the repository.
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

// anchors are the names that GitHub gives to headings.
func anchors(text string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := drop.ReplaceAllString(strings.ToLower(h[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// fileOnly are the keys that have no flag, being lists or maps.
var fileOnly = []string{"dogstatsd.labels", "dogstatsd.listeners", "http.listeners", "limits.tenants", "mapping.rules"}

var (
	// | `aggregator.lateness` | `2s` | ... ; "none" where there is no default
	keyRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (?:`([^`]*)`|none) \\|")
	// --aggregator-lateness duration   ... (default 2s)
	flagRow    = regexp.MustCompile(`(?m)^ +(?:-\w, |    )--([a-z0-9-]+)(.*)$`)
	defaultEnd = regexp.MustCompile(`\(default "?(.*?)"?\)$`)
)

// configuration.md and `freshet serve --help` name the same keys with the same
// defaults.
func TestConfigurationKeys(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/freshet", "serve", "--help").Output()
	if err != nil {
		t.Fatalf("run freshet serve --help: %v", err)
	}
	has := map[string]string{} // default by flag
	for _, row := range flagRow.FindAllStringSubmatch(string(help), -1) {
		value := ""
		if d := defaultEnd.FindStringSubmatch(row[2]); d != nil {
			value = d[1]
		}
		has[row[1]] = value
	}
	delete(has, "help")
	delete(has, "config")
	if len(has) == 0 {
		t.Fatalf("no flags in:\n%s", help)
	}
	says := map[string]string{}
	for _, row := range keyRow.FindAllStringSubmatch(read(t, "configuration.md"), -1) {
		if !slices.Contains(fileOnly, row[1]) {
			says[strings.NewReplacer(".", "-", "_", "-").Replace(row[1])] = strings.TrimPrefix(row[2], "false") // help is silent about it
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(has)) {
		if value, ok := says[flag]; !ok {
			t.Errorf("configuration.md does not have the key of --%s", flag)
		} else if value != has[flag] {
			t.Errorf("configuration.md: default of --%s is %q, in fact %q", flag, value, has[flag])
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(says)) {
		if _, ok := has[flag]; !ok {
			t.Errorf("configuration.md has a key of --%s, which does not exist", flag)
		}
	}
}

// The batch drawn byte by byte in format/batch.md is the one that the code writes.
func TestExampleOfABatch(t *testing.T) {
	_, example, _ := strings.Cut(read(t, "format/batch.md"), "```batch\n")
	example, _, _ = strings.Cut(example, "```")
	var drawn []string
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(line, "  ") // what follows is for people
		drawn = append(drawn, strings.Fields(digits)...)
	}
	const second = 1_795_228_020
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "hits", "env", "prod"))
	b := batch.Begin(nil, &batch.Header{
		Tenant: []byte("default"), Shard: series.Shard("default", key), Sender: 1, Incarnation: 2, Sequence: 3,
		Second: second, Birth: second*1e9 + 250e6,
	})
	b = (&batch.Increment{Key: key, Samples: 2, Value: 3}).Append(b, second)
	batch.End(b, 1)
	if got, want := strings.Join(drawn, ""), hex.EncodeToString(b); got != want {
		t.Errorf("drawn\n%s\nwritten\n%s", got, want)
	}
}
