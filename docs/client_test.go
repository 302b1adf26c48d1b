package docs_test

import (
	"os"
	"strings"
	"testing"
)

// The code in client.md is a copy of an example of package client, which the tests of the client compile
// and run.
func TestClientPageShowsTheExample(t *testing.T) {
	doc, err := os.ReadFile("client.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../client/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(doc), "```go\n")
	shown, _, ok := strings.Cut(shown, "```")
	if !ok || !strings.Contains(string(source), "\n"+shown) {
		t.Errorf("client/example_test.go does not contain this example of client.md:\n%s", shown)
	}
}
