package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// architectures are the processors that a release has binaries for, with Go's names.
var architectures = []string{"amd64", "arm64"}

func main() {
	source := flag.String("source", "..", "`directory` of the repository")
	out := flag.String("out", filepath.Join("..", "dist"), "`directory` that gets the release; what it has is removed")
	flag.Parse()
	if err := snapshot(context.Background(), *source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// snapshot makes a release of the repository as it stands.
func snapshot(ctx context.Context, source, out string) error {
	source, err := filepath.Abs(source) // go build -C changes the directory
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	r, err := describe(ctx, source, out)
	if err != nil {
		return err
	}
	if err := cmp.Or(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	for _, arch := range architectures {
		fmt.Println("building", r.binary(arch))
		if err := r.build(ctx, source, "./cmd/freshet", arch); err != nil {
			return err
		}
	}
	return r.pack()
}

// release is a version, and the directory that all of its files are in.
type release struct {
	commit
	source, out string
}

// binary returns the path of the binary for an architecture.
func (r release) binary(arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("freshet_%s_linux_%s", r.version, arch))
}

// pack makes everything else from the binaries.
func (r release) pack() error {
	manual, err := generate(r.source, r.time)
	if err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := cmp.Or(r.writeSBOM(arch), r.writeDeb(arch, manual), r.writeRPM(arch, manual)); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if err := r.writeImages(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return writeSums(r.out)
}

const sumsFile = "SHA256SUMS"

// writeSums writes the checksum of each file, in the form that sha256sum --check reads.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}
