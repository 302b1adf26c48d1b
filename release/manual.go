package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/freshet-io/freshet/internal/bench"
	"github.com/freshet-io/freshet/internal/cli"
	"github.com/freshet-io/freshet/internal/server"
)

// manual is what the commands say about themselves.
type manual struct {
	pages       map[string][]byte // man pages, by file name
	completions map[string][]byte // by shell
	config      []byte            // all settings with their defaults, commented out
}

// generate asks the commands for the manual, and reads docs. A page has the day of the release.
func generate(source string, day time.Time) (manual, error) {
	for _, v := range os.Environ() { // variables of this machine must not become defaults of the packages
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FRESHET_") {
			if err := os.Unsetenv(name); err != nil {
				return manual{}, err
			}
		}
	}
	m := manual{completions: map[string][]byte{}}
	var err error
	if m.pages, err = manPages(day); err != nil {
		return manual{}, err
	}
	documents, err := docPages(source, day)
	if err != nil {
		return manual{}, err
	}
	maps.Copy(m.pages, documents)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if m.completions[shell], err = printed("completion", shell); err != nil {
			return manual{}, err
		}
	}
	settings, err := printed("config")
	if err != nil {
		return manual{}, err
	}
	m.config = append([]byte(configHead), settings...)
	return m, nil
}

// configHead is the beginning of /etc/freshet.yaml.
const configHead = `# Freshet's settings, with their defaults. To change one, remove the # in front of it, then
# run: freshet check /etc/freshet.yaml && systemctl reload freshet
# Variables of freshet.service and in /etc/default/freshet come before this file.

`

func newRoot() *cobra.Command { return cli.NewRoot(server.NewCommand(), bench.NewCommand()) }

// printed returns what a command prints.
func printed(args ...string) ([]byte, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		return nil, fmt.Errorf("freshet %s: %w", strings.Join(args, " "), err)
	}
	return out.Bytes(), nil
}

// manPages returns a page for each command.
func manPages(day time.Time) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "freshet-man")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root := newRoot()
	root.DisableAutoGenTag = true // it has today's date
	header := &doc.GenManHeader{Section: "1", Source: "Freshet", Manual: "Freshet's manual", Date: &day}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for _, f := range files {
		if pages[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
