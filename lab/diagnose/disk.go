package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// memoryDisk is the size, in bytes, of the file system that fills up. The file system is in memory.
	// The load alone needs more than a few seconds to fill it.
	memoryDisk = 256 << 20

	// loopDisk is the size, in bytes, of the sparse file that stands in for a disk that freezes.
	loopDisk = 1 << 30
)

// onMemory mounts a file system of fixed size as the data directory.
func onMemory(dir string) (undo func() error, err error) {
	if err := unix.Mount("freshet-lab", dir, "tmpfs", 0, fmt.Sprintf("size=%d", memoryDisk)); err != nil {
		return nil, untriedError{fmt.Errorf("mount a tmpfs: %w", err)}
	}
	return func() error { return unix.Unmount(dir, 0) }, nil
}

// fill keeps the disk full until ctx is done, even when the server removes files.
func fill(ctx context.Context, dir string, _ *server) error {
	file, err := os.Create(filepath.Join(dir, "others"))
	if err != nil {
		return err
	}
	defer file.Close()
	for piece := make([]byte, 64<<10); ; {
		_, err := file.Write(piece)
		if errors.Is(err, syscall.ENOSPC) {
			err = wait(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
}

// onLoop mounts a file system as the data directory. The file that holds this file system is beside that
// directory.
func onLoop(dir string) (undo func() error, err error) {
	image := dir + ".img"
	file, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(file.Truncate(loopDisk), file.Close()); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			why := strings.Join(strings.Fields(string(out)), " ") // one line
			return nil, untriedError{errors.Join(fmt.Errorf("%s: %w: %s", args[0], err, why), os.Remove(image))}
		}
	}
	return func() error { return errors.Join(unix.Unmount(dir, 0), os.Remove(image)) }, nil
}

// frozen is a script that freezes a file system. It thaws the file system when the script's standard input
// ends, either on request or because the lab has died. A broken pipe must not end the script before
// that.
const frozen = `trap '' PIPE HUP INT TERM; fsfreeze -f "$1" || exit 1; echo frozen; read -r end; fsfreeze -u "$1"`

// freeze freezes the disk until ctx is done.
func freeze(ctx context.Context, dir string, _ *server) (err error) {
	cmd := exec.Command("sh", "-c", frozen, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the lab must not end the script
	var said bytes.Buffer
	cmd.Stderr = &said
	end, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return untriedError{err}
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line == "" {
		err := errors.Join(end.Close(), cmd.Wait())
		return untriedError{fmt.Errorf("freeze %s: %w: %s", dir, err, strings.TrimSpace(said.String()))}
	}
	<-ctx.Done()
	if err := errors.Join(end.Close(), cmd.Wait()); err != nil {
		return fmt.Errorf("thaw %s (by hand: fsfreeze -u): %w: %s", dir, err, strings.TrimSpace(said.String()))
	}
	return ctx.Err()
}
