// Package build describes the source from which this binary was built.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the version of a release. The linker sets it in package main, which copies it here
// before anything reads it. In other builds it is empty, and the version is the one that the Go
// command derives from git.
var Version string

// Info describes a build.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the commit in git
	Modified bool   `json:"modified,omitempty"` // the source had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This describes the running binary: it returns the Info that the linker and the Go command recorded.
func This() Info {
	b := Info{Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// UserAgent returns what our requests say of their sender, such as freshet/1.2.3.
func UserAgent() string { return "freshet/" + This().Version }

func (b Info) String() string {
	text := "freshet"
	if b.Version != "" {
		text += " " + b.Version
	}
	if b.Revision != "" {
		text += fmt.Sprintf(" (%.12s", b.Revision)
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}
