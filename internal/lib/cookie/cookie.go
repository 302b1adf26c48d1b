//go:build linux

// Package cookie numbers sockets.
package cookie

import (
	"os"

	"golang.org/x/sys/unix"
)

// Of returns the kernel's number of a socket: SO_COOKIE, which no other socket gets until the next
// boot. Where it cannot be read, as in gVisor and under qemu's emulation of another processor, it is
// the number of the inode, which another socket may get after this one is closed. Duplicates of a
// descriptor have one number.
func Of(fd int) (uint64, error) {
	if n, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err == nil {
		return n, nil
	}
	var inode unix.Stat_t
	err := unix.Fstat(fd, &inode)
	return inode.Ino, os.NewSyscallError("fstat of a socket", err)
}
