package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
)

// A part of today would be written again tomorrow, under another name beside the first one. So samples end at midnight
// unless --to says otherwise.
func TestExportLeavesOutToday(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}))
	defer empty.Close()
	var out strings.Builder
	cmd := newExportCommand()
	cmd.SetOut(&out)
	from := time.Now().Add(-48 * time.Hour)
	cmd.SetArgs([]string{t.TempDir(), "--server", empty.URL, "--json", "--from", from.Format(time.RFC3339)})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	last := exportStep{}
	for steps := json.NewDecoder(strings.NewReader(out.String())); steps.More(); {
		if err := steps.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	if end := time.UnixMilli(last.MaxTime); !end.Equal(end.Truncate(sliceTime)) || end.Before(from) {
		t.Errorf("samples end at %s, want a midnight in UTC; the output is\n%s", end, &out)
	}
}

// Blocks of two servers or tenants in one directory have different names: else the second export would say that its
// days are there.
func TestExportsOfTwoServers(t *testing.T) {
	tenant := "default"
	source := func(address string) string {
		return (&exporting{server: &apiclient.Server{Address: address}, tenant: &tenant}).source()
	}
	if source("a:8428") == source("b:8428") {
		t.Error("the blocks of two servers have the same names")
	}
	if source("a:8428") != source("http://a:8428") {
		t.Error("the blocks of a server have other names if its address has a scheme")
	}
	before := source("a:8428")
	if tenant = "team"; source("a:8428") == before {
		t.Error("the blocks of two tenants have the same names")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join("data", "operator.sock")
	if source("unix:"+socket) != source("unix:"+filepath.Join(here, socket)) {
		t.Error("the blocks of a server have other names if the path of its socket is relative")
	}
}
