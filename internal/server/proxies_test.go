package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/querycost"
)

// from sends a request from a loopback address, with a header X-Forwarded-For if that is not empty.
func (s *server) from(t *testing.T, address, forwarded, method, path string, body []byte) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http[0].addr()+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "shop/1")
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(read)
}

// A trusted proxy names the senders of what it passes on, wherever senders are shown. Other clients that send its
// header are still named by their own addresses.
func TestSendersBehindAProxy(t *testing.T) {
	s := onlyHTTP(t, ", trusted_proxies: [127.0.0.1, unix]")
	write := func(address, forwarded string, body []byte, want int) {
		t.Helper()
		if status, text := s.from(t, address, forwarded, http.MethodPost, "/api/v1/write", body); status != want {
			t.Fatalf("a write from %s for %q is answered with %d, want %d: %s", address, forwarded, status, want, text)
		}
	}
	write("127.0.0.1", "198.51.100.1, 192.0.2.1", flood(t, 2), http.StatusNoContent)
	write("127.0.0.1", "192.0.2.2", []byte("no snappy"), http.StatusBadRequest)
	write("127.0.0.1", "unknown", flood(t, 1), http.StatusNoContent)
	write("127.0.0.2", "198.51.100.1", flood(t, 1), http.StatusNoContent)
	if err := s.export(t, insecure.NewCredentials(), "x-forwarded-for", "192.0.2.3"); err != nil {
		t.Fatal(err)
	}

	var listed answer.Senders
	s.data(t, "/api/v1/status/senders", &listed)
	var addresses []string
	for _, from := range listed.Senders {
		addresses = append(addresses, from.Address)
	}
	slices.Sort(addresses)
	if want := []string{"127.0.0.1", "127.0.0.2", "192.0.2.1", "192.0.2.2", "192.0.2.3"}; !slices.Equal(addresses, want) {
		t.Errorf("the senders are %v, want %v", addresses, want)
	}
	var top answer.TopAll
	eventually(t, "the busiest sender is known", func() bool {
		write("127.0.0.1", "192.0.2.1", flood(t, 2), http.StatusNoContent)
		s.data(t, "/api/v1/status/top", &top)
		return len(top.Requests) > 0 && s.sent()[0].From == "192.0.2.1 (shop/1)" // of whole seconds, one after the other
	})
	if top.Requests[0].Address != "192.0.2.1" || top.Growing[0].Sender != "192.0.2.1 (shop/1)" {
		t.Errorf("the busiest senders are %+v, and new series are of %s; want 192.0.2.1", top.Requests, top.Growing[0].Sender)
	}

	s.from(t, "127.0.0.1", "192.0.2.4", http.MethodGet, "/api/v1/query?query=by_proxy", nil)
	s.bySocket(t, http.MethodGet, "/api/v1/query?query=by_socket", "X-Forwarded-For: 192.0.2.5; User-Agent: shop/1")
	for query, want := range map[string]string{"by_proxy": "192.0.2.4 (shop/1)", "by_socket": "192.0.2.5 (shop/1)"} {
		if !slices.ContainsFunc(s.queryCosts(), func(q querycost.Row) bool {
			return q.Query == query && q.Askers[0] == want
		}) {
			t.Errorf("the queries are %+v, want %s by %s", s.queryCosts(), query, want)
		}
	}
}

// Senders that share an address and a program are told apart by the names of their tokens, whatever the input. No
// answer has a token.
func TestSendersByToken(t *testing.T) {
	file := "tenants:\n- name: fleet\n  tokens:\n"
	for token, name := range map[string]string{"first": "web", "second": "web", "third": "shop", "fourth": `""`} {
		file += fmt.Sprintf("  - {sha256: %x, name: %s}\n", sha256.Sum256([]byte(token)), name)
	}
	s := onlyHTTP(t, ", tenants_file: "+writeIn(t, t.TempDir(), "tenants.yaml", file))
	for _, token := range []string{"first", "second", "third", "fourth"} {
		if resp, text := s.answer(t, http.MethodPost, "/api/v1/write", token, "no snappy", false); resp.StatusCode !=
			http.StatusBadRequest {
			t.Fatalf("a write is answered %s, want 400: %s", resp.Status, text)
		}
		if err := s.export(t, insecure.NewCredentials(), "authorization", "Bearer "+token); err != nil {
			t.Fatal(err)
		}
	}
	resp, text := s.answer(t, http.MethodGet, "/api/v1/status/senders", "first", "", false)
	var got struct{ Data answer.Senders }
	if err := json.Unmarshal([]byte(text), &got); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, text)
	}
	var names []string
	for _, from := range got.Data.Senders {
		names = append(names, fmt.Sprintf("%s %q", from.Input, from.Name))
	}
	slices.Sort(names)
	want := []string{
		`otlp ""`, `otlp "shop"`, `otlp "web"`, `remote_write ""`, `remote_write "shop"`, `remote_write "web"`,
	}
	if !slices.Equal(names, want) {
		t.Errorf("the senders are %q, want %q", names, want)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("third")))
	if strings.Contains(text, "third") || strings.Contains(text, hash) {
		t.Errorf("the answer has a token or its hash: %s", text)
	}
	eventually(t, "the busiest senders have names", func() bool {
		_ = s.export(t, insecure.NewCredentials(), "authorization", "Bearer first")
		requests := s.requestSenders()["fleet"]
		return len(requests) > 0 && requests[0].Name == "web"
	})
}

// A trusted proxy names senders, and nothing else: a request that it passes on for a loopback address is no
// operator's.
func TestATrustedProxyGivesNoRights(t *testing.T) {
	for _, path := range []string{"/debug/pprof/cmdline", "/api/v1/status/records"} {
		s := onlyHTTP(t, ", trusted_proxies: [127.0.0.0/8, unix]")
		status, text := s.from(t, "127.0.0.1", "127.0.0.1", http.MethodGet, path, nil)
		if status != http.StatusForbidden || !strings.Contains(text, "not through a proxy") {
			t.Errorf("%s through a proxy is answered with %d, want 403: %s", path, status, text)
		}
		if status, text := s.bySocket(t, http.MethodGet, path, "X-Forwarded-For: 127.0.0.1"); status != http.StatusForbidden {
			t.Errorf("%s through a proxy at operator.sock is answered with %d, want 403: %s", path, status, text)
		}
	}
}
