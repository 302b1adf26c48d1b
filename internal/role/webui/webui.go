// Package webui serves the web page: files that are the same for all users. The page gets its data
// from the HTTP API, with the rights of its user.
package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// Paths are the GET routes of the page, besides /.
var Paths = []string{
	"/flow", "/explore", "/alerts", "/rules", "/series", "/senders", "/queries", "/tail", "/records", "/cluster",
	"/status",
	"/licenses.txt", "/assets/{file}",
}

// noncePlace marks where index.html needs the nonce of an answer.
const noncePlace = "{{nonce}}"

// policy makes the browser load and run only our own files, and never parse text as markup. The
// query editor makes a style sheet at run time; its nonce shows the browser that it is ours.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; connect-src 'self'; " +
	"img-src 'self' data:; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Page serves the web page and its files.
type Page struct {
	index    string
	licenses *file
	assets   map[string]*file
}

// kinds has the MIME types of our files by extension. Package mime would use the machine's
// own table of types.
var kinds = map[string]string{
	".html": htmlKind, ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8",
}

const htmlKind = "text/html; charset=utf-8"

// file is one file of the page, in the forms in which it is sent.
type file struct {
	kind       string        // MIME type
	text       func() []byte // a copy: the binary has the text, and few clients take no gzip
	compressed func() []byte // compresses the text at its first call
}

// New returns a page with the files of package ui.
func New(files fs.FS) *Page {
	p := &Page{
		index: string(read(files, "index.html").text()), licenses: read(files, "licenses.txt"), assets: map[string]*file{},
	}
	if !strings.Contains(p.index, noncePlace) {
		panic("BUG: index.html has no place for the nonce")
	}
	names, err := fs.Glob(files, "assets/*")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, name := range names {
		p.assets[path.Base(name)] = read(files, name)
	}
	return p
}

// read returns a file of the binary. Its text panics if the file is missing.
func read(files fs.FS, name string) *file {
	f := &file{kind: kinds[path.Ext(name)], text: func() []byte {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		return text
	}}
	f.compressed = sync.OnceValue(func() []byte {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
		_, _ = w.Write(f.text())                              // a buffer never fails
		_ = w.Close()
		return b.Bytes()
	})
	return f
}

// Or returns a handler that serves the page to browsers, and passes requests of all
// other clients to h.
func (p *Page) Or(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			p.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ServeHTTP answers a GET of a path in Paths, or of a file of the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	name, isAsset := strings.CutPrefix(r.URL.Path, "/assets/")
	switch asset := p.assets[name]; {
	case isAsset && asset == nil:
		// an older version of the page may request this file
		http.Error(w, "there is no such file; load the page again", http.StatusNotFound)
	case isAsset:
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		asset.send(w, r)
	case r.URL.Path == "/licenses.txt":
		h.Set("Cache-Control", "no-cache")
		p.licenses.send(w, r)
	default:
		nonce := rand.Text()
		h.Set("Content-Security-Policy", fmt.Sprintf(policy, nonce))
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Type", htmlKind)
		_, _ = strings.NewReplacer(noncePlace, nonce).WriteString(w, p.index) // fails only if the browser went away
	}
}

func (f *file) send(w http.ResponseWriter, r *http.Request) {
	get := f.text
	w.Header().Set("Content-Type", f.kind)
	w.Header().Add("Vary", "Accept-Encoding")
	if takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		get = f.compressed
	}
	text := get()
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	_, _ = w.Write(text) // fails only if the browser went away
}

// takesGzip reports whether the client accepts gzip. q=0 refuses it; other weights do not matter,
// since there is only one encoding.
func takesGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(encoding), ";")
		weight = strings.ReplaceAll(weight, " ", "")
		if strings.EqualFold(name, "gzip") && strings.TrimRight(weight, ".0") != "q=" {
			return true
		}
	}
	return false
}
