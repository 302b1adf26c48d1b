package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// block is larger than the memory for requests.
var block = strings.Repeat("block ", 1<<20)

// put sends a block to the Relay over a connection, as the answers of a recorder cannot begin with 100 Continue.
func (y *relayed) put(body io.Reader) (status int, text string) {
	y.t.Helper()
	server := httptest.NewServer(y.Imports())
	defer server.Close()
	url := server.URL + "/api/v1/admin/history/01?bytes=6"
	r, err := http.NewRequestWithContext(y.t.Context(), http.MethodPut, url, body)
	if err != nil {
		y.t.Fatal(err)
	}
	r.ContentLength = -1 // as the command sends it
	answer, err := server.Client().Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		y.t.Error(err)
	}
	return answer.StatusCode, string(b)
}

// got returns the only node that got a request, and checks that it has the whole block.
func (y *relayed) got() (node string) {
	y.t.Helper()
	for name, n := range y.nodes {
		if n.number() == 0 {
			continue
		}
		if want := "PUT /api/v1/admin/history/01?bytes=6 " + block; node != "" || n.came[0] != want || n.number() > 1 {
			y.t.Errorf("node %s got %d requests, of %d bytes; want one at one node, of %d", name, n.number(),
				len(n.came[0]), len(want))
		}
		node = name
	}
	return node
}

// cut closes the connection of a request, as when its node is killed.
func cut(t *testing.T, w http.ResponseWriter) bool {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

// A block passes through whatever its size is, and to any ready node.
func TestAnImportIsNotKept(t *testing.T) {
	y := newRelayed(t)
	y.nodes["a"].Ready = false
	y.asked()
	if status, text := y.put(strings.NewReader(block)); status != http.StatusOK || text != "b" || y.got() != "b" {
		t.Errorf("status %d, %s", status, text)
	}
	if !y.memory.TryAcquire(y.MaxMemory) {
		t.Error("the import took some of the memory for requests")
	}
}

// The first node does not take the block: it stops, or it is gone. The other one gets the whole block.
func TestAnotherNodeTakesTheImport(t *testing.T) {
	for why, first := range map[string]func(y *relayed, name string){
		"it stops": func(y *relayed, name string) {
			y.nodes[name].early = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		},
		"it is gone": (*relayed).dies,
		"it dies before it reads": func(y *relayed, name string) {
			y.nodes[name].early = func(w http.ResponseWriter, _ *http.Request) bool { return cut(y.t, w) }
		},
	} {
		t.Run(why, func(t *testing.T) {
			y := newRelayed(t)
			first(y, "a")
			y.nodes["b"].Ready = false // so that it comes second
			y.nodes["c"].Ready = false
			y.asked()
			if status, text := y.put(strings.NewReader(block)); status != http.StatusOK || y.got() != text {
				t.Errorf("status %d, %s", status, text)
			}
		})
	}
}

// A node dies when it has a part of the block. No other node gets the rest, and the client learns what to do.
func TestAnImportThatHasBegunStays(t *testing.T) {
	y := newRelayed(t)
	y.nodes["b"].Ready, y.nodes["c"].Ready = false, false
	y.asked()
	y.nodes["a"].early = func(w http.ResponseWriter, r *http.Request) bool {
		if _, err := io.ReadFull(r.Body, make([]byte, 100)); err != nil {
			t.Error(err)
		}
		return cut(t, w)
	}
	status, text := y.put(strings.NewReader(block))
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "import it again") {
		t.Errorf("status %d, %s", status, text)
	}
	if node := y.got(); node != "" {
		t.Errorf("node %s got the rest", node)
	}
}

// The block of a client that leaves in the middle does not make its node count as gone.
func TestAClientLeavesItsImport(t *testing.T) {
	y := newRelayed(t)
	y.nodes["b"].Ready, y.nodes["c"].Ready = false, false
	y.asked()
	left := errors.New("the client leaves")
	_, text := y.put(io.MultiReader(strings.NewReader(block), iotest.ErrReader(left)))
	if !strings.Contains(text, left.Error()) || !y.Ready() {
		t.Errorf("the client gets %s; the gateway is ready: %v", text, y.Ready())
	}
}
