package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// commit is what git knows of the source. A release takes all its times from it.
type commit struct {
	version  string // a semantic version without v
	revision string
	time     time.Time
}

func describe(ctx context.Context, source, out string) (release, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", source}, args...)...)
		said, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", cmd, err)
		}
		return strings.TrimSpace(string(said)), nil
	}
	// Go notes in a binary that its source has other files, too. describe --dirty does not.
	changes, err := git("status", "--porcelain")
	if err != nil {
		return release{}, err
	}
	described, err := git("describe", "--tags", "--match", "v[0-9]*")
	if err != nil { // the clone has no tag: the changelog says from which release on the source has changed, or to which
		changes, err := os.ReadFile(filepath.Join(source, "CHANGELOG.md"))
		if err != nil {
			return release{}, err
		}
		newest := newestRelease.FindSubmatch(changes)
		if newest == nil {
			return release{}, errors.New("CHANGELOG.md has no release: it needs a line such as ## 0.1.0 - 2026-11-28")
		}
		count, err := git("rev-list", "--count", "HEAD")
		if err != nil {
			return release{}, err
		}
		short, err := git("describe", "--always")
		if err != nil {
			return release{}, err
		}
		of := "-dev" // older than that release
		if unreleased.Match(changes) {
			of = "" // newer
		}
		described = fmt.Sprintf("v%s%s-%s-g%s", newest[1], of, count, short)
	}
	if changes != "" {
		described += "-dirty"
	}
	revision, err := git("rev-parse", "HEAD")
	if err != nil {
		return release{}, err
	}
	seconds, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return release{}, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return release{}, err
	}
	at := commit{semantic(described), revision, time.Unix(unix, 0).UTC()}
	return release{commit: at, source: source, out: out}, nil
}

var (
	newestRelease = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - `)
	unreleased    = regexp.MustCompile(`(?m)^## Unreleased\s+###`) // with changes
)

var afterTag = regexp.MustCompile(`^(.*)-(\d+)-(g[0-9a-f]+)$`)

// semantic returns the semantic version of what git describe says. Commits after a tag become build metadata:
// as a pre-release, as which v0.1.0-3-gabc reads, they would be older than the tag.
func semantic(described string) string {
	version, dirty := strings.CutSuffix(strings.TrimPrefix(described, "v"), "-dirty")
	if m := afterTag.FindStringSubmatch(version); m != nil {
		version = m[1] + "+" + m[2] + "." + m[3]
	}
	if !dirty {
		return version
	}
	if strings.Contains(version, "+") {
		return version + ".dirty"
	}
	return version + "+dirty"
}

// build compiles a package of the source, statically, since images have no C library. It leaves out symbols, and
// with -trimpath the directory of the source. What `go env -w` and variables say about a machine's own builds does not
// count. So each machine with one version of Go builds the same bytes.
func (r release) build(ctx context.Context, source, pkg, arch string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", source, "-trimpath",
		"-buildvcs=true", "-ldflags", "-s -w -X main.version=v"+r.version, "-o", r.binary(arch), pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH="+arch,
		"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, said)
	}
	return checkBinary(r.binary(arch), arch)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkBinary refuses a binary that is not static, not stripped, or for another architecture.
func checkBinary(path, arch string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if file.Machine != machines[arch] {
		return fmt.Errorf("%s is for %s, not for %s", path, file.Machine, arch)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static", path)
		}
	}
	if file.Section(".symtab") != nil {
		return fmt.Errorf("%s is not stripped", path)
	}
	return nil
}
