//go:build faults

// Package fault makes a process ill in the way that the variable FRESHET_FAULT names, to test the
// command freshet diagnose and the nodes of a cluster. It needs the build tag faults, which releases do
// not have. Without the tag the functions are empty and leave nothing in the binary.
package fault

import (
	"bytes"
	"hash/crc32"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

var name = os.Getenv("FRESHET_FAULT")

// Run is called when the ingester begins. For the fault starvation it starts busy goroutines that
// leave no processor to other goroutines.
func Run() {
	if name != "starvation" {
		return
	}
	for range 12 * runtime.GOMAXPROCS(0) {
		go busy()
	}
}

//go:noinline
func busy() {
	block := make([]byte, 64<<10)
	for sum := uint32(0); ; {
		sum = crc32.Update(sum, crc32.IEEETable, block)
		block[0] = byte(sum)
	}
}

// held is a lock that each request holds for 25 ms.
var held sync.Mutex

// Push is called when a request reaches the ingester; `samples` is its number of samples.
func Push(samples int) {
	switch name {
	case "lock":
		hold()
	case "goroutines":
		for range samples {
			go linger()
		}
	case "garbage":
		for range samples {
			waste(400)
		}
	case "stack_growth":
		// This case comes from a report from production: each small batch had a goroutine and a deep call.
		for range (samples + 9) / 10 {
			done := make(chan int)
			go func() { done <- deep(150) }()
			<-done
		}
	}
}

//go:noinline
func hold() {
	held.Lock()
	defer held.Unlock()
	time.Sleep(25 * time.Millisecond)
}

//go:noinline
func linger() { time.Sleep(2 * time.Second) }

// node is an element of a linked list, with a pointer for the garbage collector to follow.
type node struct {
	next *node
	_    [40]byte
}

//go:noinline
func waste(nodes int) {
	var list *node
	for range nodes {
		list = &node{next: list}
	}
	runtime.KeepAlive(list)
}

// deep takes some 200 bytes of stack per level.
//
//go:noinline
func deep(levels int) int {
	var frame [20]int
	frame[levels%len(frame)] = levels
	if levels == 0 {
		return 0
	}
	return deep(levels-1) + frame[levels%len(frame)]
}

// slowFile is a file whose writes and syncs wait 400 ms in the kernel, as on a slow disk.
type slowFile struct{ *os.File }

// frozenFile is a file whose writes and syncs wait while the file that the variable FRESHET_FAULT_FROZEN
// names exists, as on a frozen file system.
type frozenFile struct{ *os.File }

var frozen = os.Getenv("FRESHET_FAULT_FROZEN")

// File returns a file of the journal, slowed down for the fault `disk`, and frozen at times for the fault `frost`.
func File(f *os.File) interface {
	Write(b []byte) (int, error)
	Close() error
	Sync() error
} {
	switch name {
	case "disk":
		return slowFile{f}
	case "frost":
		return frozenFile{f}
	}
	return f
}

func thawed() {
	for _, err := os.Stat(frozen); err == nil; _, err = os.Stat(frozen) {
		stall(10 * time.Millisecond)
	}
}

func (f frozenFile) Write(b []byte) (int, error) {
	thawed()
	return f.File.Write(b)
}

func (f frozenFile) Sync() error {
	thawed()
	return f.File.Sync()
}

func (f slowFile) Write(b []byte) (int, error) {
	stall(400 * time.Millisecond)
	return f.File.Write(b)
}

func (f slowFile) Sync() error {
	stall(400 * time.Millisecond)
	return f.File.Sync()
}

func stall(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}

// Read is called when a socket's reader has read a batch of datagrams.
func Read() {
	if name == "kernel_drops" {
		time.Sleep(200 * time.Millisecond)
	}
}

var losesBatches = os.Getenv("FRESHET_FAULT_FOLD")

// LosesBatch reports whether a member leaves out a batch of windows that it applies. For the fault `fold` it does
// while the file that the variable FRESHET_FAULT_FOLD names exists.
func LosesBatch() bool {
	if name != "fold" {
		return false
	}
	_, err := os.Stat(losesBatches)
	return err == nil
}

var poison = os.Getenv("FRESHET_FAULT_ENTRY")

// Entry panics if it is told of an entry that no member can apply: for the fault `entry`, each entry that contains the
// text in the variable FRESHET_FAULT_ENTRY.
func Entry(data []byte) {
	if name == "entry" && bytes.Contains(data, []byte(poison)) {
		panic("the entry contains " + poison)
	}
}

var place = os.Getenv("FRESHET_FAULT_PLACE")

// Kill kills the process at one of the places in the program that call it. For the fault `kill`, the variable
// FRESHET_FAULT_PLACE names the place.
func Kill(at string) {
	if name == "kill" && at == place {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
