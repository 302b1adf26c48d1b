// Package ui holds the web page as it was built from src/: docs/page.md says what it
// shows, and internal/role/webui serves it.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files has index.html, licenses.txt, and assets/, whose names hold a hash of what
// is in them.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return files
}
