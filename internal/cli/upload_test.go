package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/lib/build"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		since       time.Duration
		want        string
	}{
		{0, 4 << 20, time.Minute, "0 B of 4.0 MiB, 0%"},
		{1 << 20, 4 << 20, time.Minute, "1.0 MiB of 4.0 MiB, 25%, 3m0s left"},
		{5 << 20, 4 << 20, time.Minute, "5.0 MiB of 4.0 MiB, 100%"}, // a file grew meanwhile
		{1 << 10, 0, time.Minute, "1.0 KiB"},                        // the total is not known
	} {
		if got := progressText(c.done, c.total, c.since); got != c.want {
			t.Errorf("%d of %d after %s: %q, want %q", c.done, c.total, c.since, got, c.want)
		}
	}
}

// The server may have more samples than the block, but it must have those of the block.
func TestDiffer(t *testing.T) {
	want := blocks.Points{Labels: labels.FromStrings("__name__", "m"),
		Points: []blocks.Point{{T: 10, V: 1}, {T: 20, V: 2}}}
	for _, c := range []struct {
		name string
		got  []blocks.Point
		says string
	}{
		{"the same", want.Points, ""},
		{"more", []blocks.Point{{T: 10, V: 1}, {T: 15, V: 9}, {T: 20, V: 2}}, ""},
		{"less", want.Points[:1], `series {__name__="m"} has 2 at 20 in the block, and no sample`},
		{"another value", []blocks.Point{{T: 10, V: 1}, {T: 20, V: 3}}, "2 at 20 in the block, and 3 at 20 on the server"},
	} {
		err := differ(want, c.got)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLabelsWith(t *testing.T) {
	external := labels.FromStrings("cluster", "eu", "replica", "a")
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, `{cluster="eu", replica="a"}`},
		{[]string{"replica="}, `{cluster="eu"}`},
		{[]string{"cluster=us", "site=b=c"}, `{cluster="us", replica="a", site="b=c"}`},
		{[]string{"cluster"}, "error"},
		{[]string{"=x"}, "error"},
		{[]string{"__name__=x"}, "error"},
	} {
		got, err := labelsWith(external, c.flags)
		if text := got.String(); (err != nil) != (c.want == "error") || err == nil && text != c.want {
			t.Errorf("--label %q: %s, %v; want %s", c.flags, text, err, c.want)
		}
	}
}

// Remote read has no external labels to leave out: they are in each series already. A silent import with them would
// make two series of what was to be one.
func TestRemoteReadLeavesOutNoLabel(t *testing.T) {
	cmd := newImportRemoteReadCommand()
	cmd.SetArgs([]string{"127.0.0.1:1", "--server", "127.0.0.1:1", "--from", "1790812800", "--label", "replica="})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "cannot leave them out") {
		t.Errorf("the error is %v", err)
	}
}

// The server that is read knows by the User-Agent who reads it.
func TestRemoteReadSaysWhoReads(t *testing.T) {
	agent := ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { agent = r.UserAgent() }))
	defer server.Close()
	o, err := new(importRead).open(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := o.post(t.Context(), http.Header{}, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if agent != build.UserAgent() {
		t.Errorf("the User-Agent is %q, want %q", agent, build.UserAgent())
	}
}

// An import goes to the tenant that the command names, or to that of the server's address, and the comparison must be
// with the same. The reads of users may be of another tenant, or refused.
func TestComparisonIsWithTheTenantOfTheImport(t *testing.T) {
	for _, tenant := range []string{"", "team"} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.String()
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		}))
		u := &upload{server: apiclient.Server{Address: server.URL}, tenant: tenant}
		err := u.compare(t.Context(), []blocks.Points{{Labels: labels.FromStrings("__name__", "m"),
			Points: []blocks.Point{{T: 10, V: 1}}}})
		server.Close()
		if want := historyPath + "/read?tenant=" + tenant; asked != want || err == nil {
			t.Errorf("a comparison with tenant %q asks %s, want %s; the server has no samples, and the error is %v",
				tenant, asked, want, err)
		}
	}
}
