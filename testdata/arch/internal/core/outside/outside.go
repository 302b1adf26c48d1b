// Package outside opens files and sockets.
package outside

import (
	_ "net"
	_ "net/http"
	_ "net/netip"
	_ "os"
	_ "os/exec"
	_ "syscall"

	_ "github.com/freshet-io/freshet/internal/adapter/files"
	_ "github.com/freshet-io/freshet/internal/lib/plain"
	_ "golang.org/x/sys/unix"
)
