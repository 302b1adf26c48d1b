package peers

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/freshet-io/freshet/lab/repository"
)

// goModule builds a package with the versions and sums of the module in the peer's folder.
func goModule(pkg string, tags ...string) func(context.Context, *Peer, string, io.Writer) error {
	return func(ctx context.Context, p *Peer, home string, out io.Writer) error {
		folder, err := source()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(folder, p.Name), "-trimpath",
			"-tags", strings.Join(tags, ","), "-o", filepath.Join(home, p.program), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		cmd.Stdout, cmd.Stderr = out, out
		return cmd.Run()
	}
}

// source returns the folder of this package. Nested modules are not part of our module, so their
// files cannot be embedded.
func source() (string, error) {
	root, err := repository.Dir()
	return filepath.Join(root, "lab/peers"), err
}
