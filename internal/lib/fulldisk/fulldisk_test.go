package fulldisk

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestIs(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false, fs.ErrExist: false,
		fmt.Errorf("write: %w", &fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}): true,
	} {
		if Is(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
