package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/remoteread"
	"github.com/freshet-io/freshet/internal/answer"
)

// aBlock returns a block with one sample of a metric, as an archive, and the size of its files.
func aBlock(t *testing.T, metric string) (id ulid.ULID, archive string, bytes int64) {
	t.Helper()
	dir := t.TempDir()
	w, err := prom.NewBlockWriter(slog.New(slog.DiscardHandler), dir, time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	if _, err := app.Append(0, labels.FromStrings("__name__", metric), 1000, 1); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if id, err = w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var packed strings.Builder
	if err := blocks.Pack(&packed, filepath.Join(dir, id.String())); err != nil {
		t.Fatal(err)
	}
	bytes, err = blocks.Bytes(filepath.Join(dir, id.String()))
	if err != nil {
		t.Fatal(err)
	}
	return id, packed.String(), bytes
}

func historyPath(block, tenant string, bytes int64) string {
	return "/api/v1/admin/history/" + block + "?" + url.Values{
		"tenant": {tenant}, "bytes": {strconv.FormatInt(bytes, 10)},
	}.Encode()
}

// An import of a tenant is that tenant's alone. What cannot be imported is refused with what to do.
func TestImportRoutes(t *testing.T) {
	s := withoutSockets(t)
	id, archive, bytes := aBlock(t, "imported")
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no ULID", "PUT", historyPath("block", "", bytes), archive, 400, "named by a ULID"},
		{"no size", "PUT", "/api/v1/admin/history/" + id.String(), archive, 400, "give the size"},
		{"a size below 0", "PUT", historyPath(id.String(), "", -1), archive, 400, "give the size"},
		{"no tenant", "PUT", historyPath(id.String(), "../b", bytes), archive, 400, "tenant"},
		{"too large for the disk", "PUT", historyPath(id.String(), "", math.MaxInt64/2), archive, 507, "free some"},
		{"more than announced", "PUT", historyPath(id.String(), "", bytes-1), archive, 400, "more bytes than were announced"},
		{"another block", "PUT", historyPath(ulid.ULID{1}.String(), "", bytes), archive, 400, "does not describe this block"},
		{"a tenant without samples", "GET", "/api/v1/admin/history?tenant=team", "", 200, `"unknown":true`},
		{"imported", "PUT", historyPath(id.String(), "team", bytes), archive, 200, `"samples":1`},
		{"imported before", "PUT", historyPath(id.String(), "team", bytes), archive, 409, "imported already"},
		{"listed", "GET", "/api/v1/admin/history?tenant=team", "", 200, id.String()},
		{"another tenant has none", "GET", "/api/v1/admin/history", "", 200, `"blocks":[]`},
		{"another tenant's", "DELETE", "/api/v1/admin/history/" + id.String(), "", 404, "no such block"},
		{"removed", "DELETE", historyPath(id.String(), "team", 0), "", 200, "success"},
		{"listed no more", "GET", "/api/v1/admin/history?tenant=team", "", 200, `"blocks":[]}`}, // and not unknown
	} {
		resp, text := s.answer(t, c.method, c.path, "", c.body, false)
		if resp.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s %s: want %d and %q", c.name, resp.Status, text, c.status, c.says)
		}
	}
}

// By every way that operators have, a read is of the tenant that it names, as the import is. By the header, a server
// without tenants would ignore the name, and an export of another tenant would have the samples of the default one.
func TestOperatorsReadTheTenantThatTheyName(t *testing.T) {
	dir := t.TempDir()
	tenants, operators := filepath.Join(dir, "tenants.yaml"), filepath.Join(dir, "operators.yaml")
	for file, text := range map[string]string{
		tenants:   tenantsText(),
		operators: fmt.Sprintf("operators: [{name: op, tokens: [{sha256: %x}]}]", sha256.Sum256([]byte("op"))),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, config := range map[string]string{
		"no tenants": "", "a trusted header": "trust_tenant_header: true, ", "tokens": "tenants_file: " + tenants + ", ",
	} {
		s := running(t, `
data_dir: `+t.TempDir()+`
http: {`+config+`listen: "127.0.0.1:0", operators_file: `+operators+`}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
		for tenant, metric := range map[string]string{"": "of_default", "team-beta": "of_beta"} {
			id, archive, bytes := aBlock(t, metric)
			resp, text := s.answer(t, "PUT", historyPath(id.String(), tenant, bytes), "", archive, false)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: import of %s: %s %s", name, metric, resp.Status, text)
			}
		}
		for way, server := range map[string]apiclient.Server{
			"loopback": {Address: s.http[0].addr()}, "operator.sock": {Address: "unix:" + s.operatorPath()},
		} {
			for _, token := range []string{"", "op"} {
				t.Setenv(apiclient.TokenVariable, token)
				for tenant, want := range map[string]string{"": "[of_default]", "team-beta": "[of_beta]", "nobody": "[]"} {
					if got := namesRead(t, server, tenant); got != want {
						t.Errorf("%s, by %s with the token %q: tenant %q has %s, want %s", name, way, token, tenant, got, want)
					}
				}
			}
		}
	}
}

// namesRead returns the names of all series of a tenant, by remote read.
func namesRead(t *testing.T, server apiclient.Server, tenant string) string {
	t.Helper()
	names := []string{}
	post := func(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
		return server.Do(ctx, "POST", "/api/v1/admin/history/read", url.Values{"tenant": {tenant}}, header, body)
	}
	err := remoteread.Read(t.Context(), post, 0, 2000,
		[]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")},
		func(ls labels.Labels, _ []chunks.Meta) error {
			names = append(names, ls.Get("__name__"))
			return nil
		})
	if err != nil {
		t.Errorf("read of tenant %q at %s: %v", tenant, server, err)
	}
	return fmt.Sprint(names)
}

// An import may make the first stores of a tenant, so it needs a place, too.
func TestImportOfOneTenantTooMany(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
store: {max_tenants: 2}
self: {metrics: false}
`)
	id, archive, bytes := aBlock(t, "imported")
	if resp, text := s.answer(t, "PUT", historyPath(id.String(), "a", bytes), "", archive, false); resp.StatusCode != 200 {
		t.Errorf("the first tenant: %s %s", resp.Status, text)
	}
	s.answer(t, "PUT", historyPath(id.String(), "b", bytes), "", archive, false) // the server's own tenant may be there
	resp, text := s.answer(t, "PUT", historyPath(id.String(), "c", bytes), "", archive, false)
	if resp.StatusCode != http.StatusConflict || !strings.Contains(text, "store.max_tenants") {
		t.Errorf("the third tenant of two: %s %s", resp.Status, text)
	}
}

// takesUntilLeft is a cluster in which no other node gets the block: an import ends only when its client leaves.
type takesUntilLeft struct {
	clusterImports
	dir   string
	state *string
}

func (c takesUntilLeft) take(ctx context.Context, _ string, _ ulid.ULID, fill func(dir string) error) (
	done answer.HistoryBlock, err error,
) {
	if err := fill(c.dir); err != nil {
		return done, err
	}
	*c.state = "the block is here"
	<-ctx.Done()
	*c.state = "the client has left"
	return done, ctx.Err()
}

// pipes is a listener of connections within the process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (pipes) Addr() net.Addr { return nil }

// An import that waits for other nodes ends when its client leaves, also if the end of the body came later than the
// archive. Otherwise it would hold up all other imports. It does not end before.
func TestAnImportEndsWithItsClient(t *testing.T) {
	_, archive, bytes := aBlock(t, "imported")
	synctest.Test(t, func(t *testing.T) {
		state := "the body has not ended"
		h := &history{dataDir: t.TempDir(), ready: func() error { return nil },
			cluster: takesUntilLeft{dir: t.TempDir(), state: &state}}
		is := func(want string) {
			t.Helper()
			if synctest.Wait(); state != want {
				t.Fatalf("%s, want: %s", state, want)
			}
		}
		mux := http.NewServeMux()
		mux.HandleFunc("PUT /{block}", h.serve(h.put))
		server, listener := &http.Server{Handler: mux}, make(pipes)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server.BaseContext = func(net.Listener) context.Context { return ctx }
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		client, conn := net.Pipe()
		defer client.Close()
		listener <- conn
		_, err := fmt.Fprintf(client, "PUT /%s?bytes=%d&tenant=default HTTP/1.1\r\n"+
			"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", ulid.ULID{1}, bytes, len(archive), archive)
		if err != nil {
			t.Fatal(err)
		}
		is("the body has not ended")
		if _, err := fmt.Fprint(client, "0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * importStall) // which bounds the wait for the body, and not the import
		is("the block is here")
		client.Close()
		is("the client has left")
	})
}

// A node of an older version would stop at the entry of an import.
func TestAClusterImportsOnceAllNodesKnowHow(t *testing.T) {
	h := &history{dataDir: t.TempDir(), ready: func() error { return nil },
		cluster: &clusterHistory{older: func() bool { return true }}}
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/?bytes=1&tenant=default", nil)
	r.SetPathValue("block", ulid.ULID{1}.String())
	w := httptest.NewRecorder()
	h.serve(h.put)(w, r)
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "upgrade all nodes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
