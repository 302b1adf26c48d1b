package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/explain"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/settings"
)

// shell runs a command and returns what it writes.
func shell(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

// noHost writes a configuration whose series do not depend on the machine, and returns its path.
func noHost(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte("dogstatsd:\n  host_label: false\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExplainShows(t *testing.T) {
	file := noHost(t, `mapping:
  rules:
    - match: "api.*.time"
      name: api_seconds
      labels: {service: "$1"}
      scale: 0.001
      buckets: [0.1, 1]
    - match: "debug.*"
      action: drop
    - match: open
      updown: true
`)
	for _, c := range []struct{ why, line, want string }{
		{"a rule, a scale, buckets", "api.cart.time:320|ms|#env:prod", `
api.cart.time:320|ms|#env:prod
~~~~~~~~~~~~~ ~~~ ~~  ~~~~~~~~
  name          api.cart.time the metric's name
  value         320           a measurement of 320
  type          ms            a timing
  tag           env:prod      a tag: env = prod
becomes
  rule          mapping.rules[0], match: api.*.time
  kind          timer
  series        api_seconds_bucket{env="prod", service="cart"}
  values        counts as 1 in classic buckets up to 0.1, 1 and +Inf (api_seconds_bucket, _sum, _count); each value is multiplied by 0.001: 320 is 0.32
  shard         785
  stored in     10s tiles for 2d, 1m tiles for 40d
`},
		{"a rule that drops", "debug.gc:1|c", `
debug.gc:1|c
~~~~~~~~ ~ ~
  name          debug.gc the metric's name
  value         1        adds 1
  type          c        a count
becomes
  rule          mapping.rules[1], match: debug.*
  kind          counter
  values        dropped by the rule
`},
		{"a rule by which counts go down", "open:-3:1|c|@0.5", `
open:-3:1|c|@0.5
~~~~ ~~ ~ ~ ~~~~
  name          open the metric's name
  value         -3   adds -6 (-3 at a rate of 0.5)
  value         1    adds 2 (1 at a rate of 0.5)
  type          c    a count
  rate          @0.5 a sampling rate: each value stands for 2
becomes
  rule          mapping.rules[2], match: open
  kind          updown
  series        open
  values        adds -4 to a total that goes up and down, is kept for 40d after the last sample, and is stored as a gauge
  shard         946
  stored in     10s tiles for 2d, 1m tiles for 40d
`},
		{"lines of one datagram that claim one name, and bytes that are no text", "a\x1b:1|c\na_:2|g", `
a\x1b:1|c
~~~~~ ~ ~
  name          a\x1b the metric's name
  value         1     adds 1
  type          c     a count
becomes
  rule          none matches
  kind          counter
  series        a_
  values        adds 1 to a counter
  shard         1023
  stored in     10s tiles for 2d, 1m tiles for 40d

a_:2|g
~~ ~ ~
  name          a_ the metric's name
  value         2  sets the gauge to 2
  type          g  a gauge
becomes
  rule          none matches
  kind          gauge
  series        a__gauge
  values        sets the gauge to 2; if several senders write one series, the last value holds
  shard         687
  stored in     10s tiles for 2d, 1m tiles for 40d
warning: the name a_ belongs to the counter a\x1b, so this gauge is stored as a__gauge
`},
	} {
		out, errs, code := shell(t, "explain", c.line, "--config", file)
		if code != command.OK || errs != "" || out != c.want[1:] {
			t.Errorf("%s: exit %d, %s\n%s\nwant\n%s", c.why, code, errs, out, c.want[1:])
		}
	}
}

func TestExplainShowsTheFault(t *testing.T) {
	out, errs, code := shell(t, "explain", "price:1,5|g\nok:1|c", "--offline")
	want := "price:1,5|g\n       ^\nmalformed: bad_value at byte 7: expected a decimal number, such as 1, -0.5 or 1e3\n"
	if code != command.Failure || !strings.HasPrefix(out, want) || errs != "freshet: 1 of 2 lines malformed\n" {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", code, errs, out, want)
	}
}

// Characters of East Asian scripts are two columns wide, and the mark accounts for that.
func TestExplainMarksTheColumn(t *testing.T) {
	out, _, _ := shell(t, "explain", "日本:1,5|g", "--offline")
	if want := "日本:1,5|g\n      ^\n"; !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestExplainAsJSON(t *testing.T) {
	out, _, code := shell(t, "explain", "hits:1|c|T7|x", "--config", noHost(t, ""), "--json", "--tenant", "shop")
	var a struct {
		Status string           `json:"status"`
		Data   answer.Explained `json:"data"`
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != command.OK {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	l := a.Data.Lines[0]
	if a.Status != "success" || a.Data.Tenant != "shop" || l.Becomes.Query != "hits" || len(l.Fields) != 5 ||
		len(l.Warnings) != 2 {
		t.Errorf("unexpected explanation: %s", out)
	}
}

func TestExplainWithoutAServer(t *testing.T) {
	_, errs, code := shell(t, "explain", "hits:1|c", "--server", "127.0.0.1:1")
	if code != command.Failure || !strings.Contains(errs, "--offline") {
		t.Errorf("exit %d, %s", code, errs)
	}
	_, errs, code = shell(t, "explain", "hits:1|c", "--config", noHost(t, "mapping: {rules: 7}\n"))
	if code != command.Usage || !strings.Contains(errs, "mapping.rules") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// Input that is too long is an error. If the command cut it off, the cut line would look malformed.
func TestExplainOfTooMuch(t *testing.T) {
	for _, c := range []struct {
		bytes int
		want  string
	}{{explain.MaxBytes, ""}, {explain.MaxBytes + 2, "standard input is longer than the 1048576 bytes"}} {
		root := newRoot()
		root.SetArgs([]string{"explain", "-", "--config", noHost(t, "")})
		root.SetIn(strings.NewReader(strings.Repeat("\n", c.bytes-5) + "a:1|c"))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %d bytes of input, got the error %v, want %q", c.bytes, err, c.want)
		}
	}
}

// The command sends the bytes to the server unchanged, even when they are many.
func TestExplainAsksAServer(t *testing.T) {
	line := strings.Repeat("a", 60_000) + "\x80:1|c"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != line || r.Method != http.MethodPost ||
			r.URL.Query().Get("tenant") != "shop" {
			t.Errorf("the server got %s %s with %d bytes, error %v; want a POST for the tenant shop with the whole line",
				r.Method, r.URL, len(got), err)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"tenant":"shop","lines":[]}}`)
	}))
	defer server.Close()
	if _, errs, code := shell(t, "explain", line, "--tenant", "shop", "--server", server.URL); code != command.OK {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// FuzzExplainer checks that any input is explained and can be shown.
func FuzzExplainer(f *testing.F) {
	f.Add([]byte("a\xff:1|c|@0.5|#x:\x1b[2J\nb:2|g\n_e{2,1}:é|b\r\n_sc|\x00|1"))
	x, err := explain.New(settings.Default(), time.Unix(1_800_000_000, 0))
	if err != nil {
		f.Fatal(err)
	}
	steers := regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f]`)
	f.Fuzz(func(t *testing.T, packet []byte) {
		e := x.Explain("default", packet)
		next := 0
		for line := range dogstatsd.Lines(packet) {
			for _, colour := range []bool{false, true} {
				var b strings.Builder
				printLine(&b, &e.Lines[next], colour, line)
				if text := b.String(); !colour && steers.MatchString(text) {
					t.Errorf("%q has control characters", text)
				}
			}
			next++
		}
	})
}
