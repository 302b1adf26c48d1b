package webui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func testPage() *Page {
	return New(fstest.MapFS{
		"index.html":        {Data: []byte(`<meta name="csp-nonce" content="{{nonce}}">`)},
		"licenses.txt":      {Data: []byte("MIT")},
		"assets/main-AB.js": {Data: []byte(strings.Repeat("let a;", 100))},
	})
}

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The policy of a page names the page's nonce. No two pages have the same nonce.
func TestPolicy(t *testing.T) {
	seen := map[string]bool{}
	for _, path := range append([]string{"/"}, Paths[:len(Paths)-2]...) { // without the files
		w := get(testPage(), path)
		_, nonce, _ := strings.Cut(w.Body.String(), `content="`)
		nonce, _, _ = strings.Cut(nonce, `"`)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || len(nonce) < 20 || seen[nonce] ||
			!strings.Contains(policy, "style-src 'self' 'nonce-"+nonce+"';") {
			t.Errorf("%s: status %d, nonce %q, policy %q, want a new nonce in the policy", path, w.Code, nonce, policy)
		}
		if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" ||
			w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
		seen[nonce] = true
	}
}

func TestAssets(t *testing.T) {
	p := testPage()
	const name = "/assets/main-AB.js"
	plain := strings.Repeat("let a;", 100)
	for accept, compressed := range map[string]bool{"": false, "gzip": true, "br;q=1, GZIP;q=0.5": true, "gzip;q=0": false,
		"gzip; q=0.0": false, "br": false} {
		w := get(p, name, "Accept-Encoding", accept)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != compressed {
			t.Errorf("Accept-Encoding %q: compressed %v, want %v", accept, got, compressed)
		} else if got {
			body, _ = gzip.NewReader(w.Body)
		}
		text, err := io.ReadAll(body)
		if err != nil || string(text) != plain {
			t.Errorf("Accept-Encoding %q: error %v, body %q", accept, err, text)
		}
		if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/javascript") ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("Accept-Encoding %q: headers %v", accept, w.Header())
		}
	}
	if w := get(p, "/assets/main-CD.js"); w.Code != http.StatusNotFound || w.Header().Get("Cache-Control") != "" {
		t.Errorf("a file of another version: status %d, headers %v, want 404, not cached", w.Code, w.Header())
	}
	if w := get(p, "/licenses.txt"); w.Body.String() != "MIT" || w.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("licenses: %q, %v", w.Body, w.Header())
	}
}

// Browsers get the page; curl gets the list of addresses.
func TestOr(t *testing.T) {
	h := testPage().Or(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "list") }))
	if w := get(h, "/", "Accept", "*/*"); w.Body.String() != "list" {
		t.Errorf("curl gets %s", w.Body)
	}
	if w := get(h, "/", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8"); !strings.Contains(w.Body.String(),
		"<meta") || w.Header().Get("Vary") != "Accept" {
		t.Errorf("a browser gets %s", w.Body)
	}
}
