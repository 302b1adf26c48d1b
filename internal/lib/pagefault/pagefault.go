// Package pagefault is for code that reads files through a map of memory. If the disk cannot read a page of such a
// file, or the file is shorter than its map, reading it raises SIGBUS, which ends a Go process. Here that becomes an
// error of the goroutine that reads.
package pagefault

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Error says that a page of a mapped file could not be read.
type Error struct{ Cause error }

// Error names the likely causes, since the kernel does not.
func (e *Error) Error() string {
	return fmt.Sprintf("a part of a file cannot be read: its disk has a bad sector, or it was cut short (%v)", e.Cause)
}

func (e *Error) Unwrap() error { return e.Cause }

// On makes faults of the calling goroutine panics, until it calls `off`. Of recognizes these panics.
func On() (off func()) {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// Of returns the error for a value that was recovered from a panic, or for an error that an engine has made of it. It
// is nil if the panic was none of a fault: a nil pointer, which is a bug, has no address.
func Of(panicked any) *Error {
	fault, is := panicked.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !is {
		return nil
	}
	return &Error{fault}
}

// Guard calls `read`, and returns an *Error if it faults. It does not recover from any other panic.
func Guard(read func() error) (err error) {
	defer On()()
	defer func() {
		if p := recover(); p != nil {
			fault := Of(p)
			if fault == nil {
				panic(p)
			}
			err = fault
		}
	}()
	return read()
}
