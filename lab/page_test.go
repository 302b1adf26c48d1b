package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/lab/report"
)

// The committed page and plots match the committed results. `go run -C lab . -render` writes them anew.
func TestCommittedPage(t *testing.T) {
	t.Chdir("..")
	results, err := report.Read(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if page, err := results.Page(string(old)); err != nil {
		t.Error(err)
	} else if page != string(old) {
		t.Errorf("%s does not match %s; run: go run -C lab . -render", pageFile, resultsFile)
	}
	plots := results.Plots()
	for name, plot := range plots {
		if old, err := os.ReadFile(filepath.Join(filepath.Dir(resultsFile), name)); err != nil || string(old) != plot {
			t.Errorf("%s does not match %s (%v); run: go run -C lab . -render", name, resultsFile, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(resultsFile), "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, shown := plots[filepath.Base(file)]; !shown {
			t.Errorf("%s is the plot of a load that is not in the results; delete the file", file)
		}
	}
}
