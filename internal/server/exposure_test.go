package server

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// docs/operations.md, "Many tenants", says for each path who sees what. The longest of its paths that begins a route
// must be in the row of the route's exposure.
func TestTheManualSaysWhoSeesWhat(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| path | who sees what |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{} // the second cell of each path
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			t.Fatalf("no row of two cells: %s", line)
		}
		dir := "/"
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			p := name[1]
			if !strings.HasPrefix(p, "/") { // as the one before it
				p = dir + p
			}
			rows[p] = cells[2]
			dir = path.Dir(strings.TrimSuffix(p, "/")) + "/"
		}
	}
	says := map[exposure]string{probes: " everybody ", pages: " a tenant: its own data ",
		reads: " a tenant: its own data ", writes: " a tenant: its own data ",
		readsHere: " a tenant: its own data, on the server's machine; an operator:",
		operates:  " operators: ", operatesMany: " operators: ", splits: " a tenant: metrics whose label"}
	used := map[string]bool{}
	for pattern, e := range exposures {
		route := pattern[strings.Index(pattern, "/"):]
		longest := ""
		for p := range rows {
			begins := route == p || strings.HasPrefix(route, strings.TrimSuffix(p, "/")+"/")
			if begins && len(p) > len(longest) {
				longest = p
			}
		}
		used[longest] = true
		if !strings.HasPrefix(rows[longest], says[e]) {
			t.Errorf("%s: the row of %s says %q, want %q", pattern, longest, rows[longest], says[e])
		}
	}
	for p := range rows {
		if !used[p] {
			t.Errorf("%s begins no route", p)
		}
	}
}
