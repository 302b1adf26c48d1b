//go:build linux

// Package cookie numbers sockets.
package cookie

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Of returns the kernel's number of a socket: SO_COOKIE, which no other socket gets until the next
// boot. Kernels without it, such as gVisor's, number the inode, which another socket may get after
// this one is closed. Duplicates of a descriptor have one number.
func Of(fd int) (uint64, error) {
	n, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if !errors.Is(err, unix.ENOPROTOOPT) {
		return n, os.NewSyscallError("getsockopt SO_COOKIE", err)
	}
	var inode unix.Stat_t
	err = unix.Fstat(fd, &inode)
	return inode.Ino, os.NewSyscallError("fstat of a socket", err)
}
