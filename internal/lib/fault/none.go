//go:build !faults

// Package fault makes a process ill, to test the command freshet diagnose. Without the build tag
// faults, which releases do not have, its functions are empty and leave nothing in the binary.
package fault

import "os"

func Run()                     {}
func LosesBatch() bool         { return false }
func Entry(data []byte)        {}
func Kill(at string)           {}
func Push(samples int)         {}
func Read()                    {}
func File(f *os.File) *os.File { return f }
