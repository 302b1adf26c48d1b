package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each promised-VERSION.txt lists the names that a minor version promises. The keys are in configuration.md, which
// TestConfigurationReference compares with the binary. The metrics are in the alerts and dashboards, which
// TestDashboards of e2e asks of a running Freshet. The routes are those that a server knows.
func TestPromisedNamesAreThere(t *testing.T) {
	lists, err := filepath.Glob(filepath.Join("testdata", "promised-*.txt"))
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of promised names: %v", err)
	}
	dashboards, err := filepath.Glob(filepath.Join("..", "deploy", "grafana", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	metrics := read(t, "../deploy/alerts.yaml")
	for _, file := range dashboards {
		metrics += read(t, file)
	}
	var keys []string
	for _, entry := range keyEntry.FindAllStringSubmatch(read(t, "configuration.md"), -1) {
		keys = append(keys, entry[1])
	}
	known := map[string][]string{
		"key":    keys,
		"metric": strings.FieldsFunc(metrics, func(r rune) bool { return !inName(r) }),
		"route":  strings.Split(read(t, "../internal/server/exposure.go"), `"`),
	}
	for _, list := range lists {
		counted := map[string]int{}
		for line := range strings.Lines(read(t, list)) {
			kind, name, found := strings.Cut(strings.TrimSpace(line), " ")
			if !found || kind == "#" {
				continue
			}
			counted[kind]++
			if !slices.Contains(known[kind], name) {
				t.Errorf("%s promises the %s %s, which is gone: see compatibility.md", list, kind, name)
			}
		}
		if counted["key"] < 190 || counted["metric"] < 50 || counted["route"] < 30 {
			t.Errorf("%s promises only %v", list, counted)
		}
	}
}

// keyEntry is the beginning of the entry of a key in configuration.md. Elsewhere a key may be named that is gone.
var keyEntry = regexp.MustCompile("(?m)^ *- (?:\\*\\*)?`([^`]+)`")

// inName reports whether a rune may be in the name of a metric.
func inName(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
}
