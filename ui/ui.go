// Package ui holds the web page, which is built from src/. docs/page.md describes the
// page, and internal/role/webui serves it.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files has index.html, licenses.txt and assets/. Names in assets/ hold a hash of the
// content.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return files
}
