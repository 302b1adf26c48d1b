// Package order has more files than are read in any order. One is not named here, one
// that is named is not there, and one is named twice. That top.go is named first here says nothing:
//
//	top.go         what is read first
//	middle.go      what stands in the middle
//	gone.go        nothing
//	bottom.go      what uses names of those above it
//	middle.go      the same once more, which leaves its place as it is
//	f1.go, f2.go   more files
//	f3.go, f4.go, f5.go, f6.go
package order
