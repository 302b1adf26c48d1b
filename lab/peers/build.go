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

// goModule builds a package with the versions and sums of the module that lies in
// the folder of the peer's name.
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

// source is the folder of this package. The nested modules are not of ours, so
// their files cannot be embedded.
func source() (string, error) {
	root, err := repository.Dir()
	return filepath.Join(root, "lab/peers"), err
}
