// Command site builds the manual as a static site: pages from README.md, docs/ and other Markdown files, a search that
// works without a server, and no request to anywhere else. The same files always make the same bytes.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	source := flag.String("source", "..", "`directory` of the repository")
	out := flag.String("out", filepath.Join("..", "dist", "site"),
		"`directory` that gets the site; what it has is removed")
	screenshots := flag.String("pictures", "", "make docs/pictures from the screenshots in this `directory` instead")
	flag.Parse()
	run := func() error { return build(*source, *out) }
	if *screenshots != "" {
		run = func() error { return writePictures(*screenshots, filepath.Join(*source, "docs", "pictures")) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// build writes the whole site into a directory.
func build(source, out string) error {
	s, err := read(source)
	if err != nil {
		return err
	}
	if err := cmp.Or(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	return s.write(out)
}
