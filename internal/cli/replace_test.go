package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
)

// steps is a server of a cluster: each look at its status is the next step.
type steps struct {
	status []string // answers to the looks; the last one stays
	refuse int      // how many further requests to replace a node are refused, after the first one
	looks  int
	asked  []int // the looks after which the replacement of node b was asked for
}

func (s *steps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/status/cluster" {
		io.WriteString(w, s.status[min(s.looks, len(s.status)-1)])
		s.looks++
		return
	}
	s.asked = append(s.asked, s.looks)
	if n := len(s.asked); r.URL.Path != "/api/v1/admin/cluster/replace" || r.FormValue("node") != "b" ||
		n > 1 && n <= 1+s.refuse {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"status":"error","errorType":"conflict","error":"node b cannot be replaced: it still answers"}`)
		return
	}
	io.WriteString(w, `{"status":"success"}`)
}

func ledBy(leader string, term int, member string) string {
	return fmt.Sprintf(`{"status":"success","data":{"leader":%q,"groups":[{"leader":%[1]q,"term":%d,"names":{"b":%q}}]}}`,
		leader, term, member)
}

// While the command waits, another node leads, and then the same one again in a later term. Each is asked, and asked
// again if it does not know yet that the node is lost. Once another member has the name, the command ends.
func TestReplaceWaits(t *testing.T) {
	s := &steps{refuse: 1, status: []string{ledBy("a", 3, "7"), ledBy("a", 3, "7"), ledBy("", 4, "7"), ledBy("c", 4, "7"),
		ledBy("c", 4, "7"), ledBy("c", 4, "7"), ledBy("c", 6, "7"), ledBy("c", 6, "8")}}
	web := httptest.NewServer(s)
	defer web.Close()
	var out strings.Builder
	server := apiclient.Server{Address: web.URL}
	r := replacement{server: &server, node: "b", out: &out, every: time.Millisecond, most: time.Minute}
	if err := r.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(s.asked), "[1 4 5 7]"; got != want {
		t.Errorf("the replacement was asked for after the looks %s, want %s", got, want)
	}
	_, lines, _ := strings.Cut(out.String(), "--cluster-join ...\n")
	if want := `No node leads.
Trying again: conflict: node b cannot be replaced: it still answers
Node c leads now. Node b may join again.
Node b has the new directory. freshet cluster status shows how it gets its data.
`; lines != want {
		t.Errorf("it printed\n%s, want\n%s", lines, want)
	}
}

// The new directory does not come. The wait ends, and says what to do.
func TestReplaceEnds(t *testing.T) {
	web := httptest.NewServer(&steps{status: []string{ledBy("a", 3, "7")}})
	defer web.Close()
	server := apiclient.Server{Address: web.URL}
	r := replacement{server: &server, node: "b", out: io.Discard, every: time.Millisecond, most: 20 * time.Millisecond}
	if err := r.wait(t.Context()); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("the wait ends with %v", err)
	}
}
