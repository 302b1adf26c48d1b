package client_test

import (
	"os"
	"strings"
	"testing"
)

// What docs/client.md shows is what is compiled and run here.
func TestDocumentationShowsTheExample(t *testing.T) {
	doc, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(doc), "```go\n")
	shown, _, ok := strings.Cut(shown, "```")
	if !ok || !strings.Contains(string(source), "\n"+shown) {
		t.Errorf("example_test.go has not what docs/client.md shows:\n%s", shown)
	}
}
