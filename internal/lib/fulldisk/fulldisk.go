// Package fulldisk recognizes the errors of a disk without space. It opens no files.
package fulldisk

import (
	"errors"
	"syscall"
)

// Err is the error of a write to a full disk.
const Err = syscall.ENOSPC

// Is reports whether an error comes from a full disk or a used-up quota.
func Is(err error) bool { return errors.Is(err, Err) || errors.Is(err, syscall.EDQUOT) }
