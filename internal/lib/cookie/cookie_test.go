//go:build linux

package cookie

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A number belongs to a socket and its duplicates alone, also on a kernel without SO_COOKIE.
func TestOf(t *testing.T) {
	t.Run("with SO_COOKIE", testOf)
	t.Run("without", func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // the thread, which keeps its filter, ends with this goroutine
			refuseCookies(t)
			if !t.Failed() {
				testOf(t)
			}
		}()
		<-done
	})
}

func testOf(t *testing.T) {
	one, other := udp(t), udp(t)
	again, err := unix.Dup(one)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(again)
	numbers := map[int]uint64{}
	for _, fd := range []int{one, other, again} {
		if numbers[fd], err = Of(fd); err != nil {
			t.Error(err)
		}
	}
	if numbers[one] == 0 || numbers[one] != numbers[again] || numbers[one] == numbers[other] {
		t.Errorf("a socket has the number %d, its duplicate %d, and another socket %d", numbers[one], numbers[again],
			numbers[other])
	}
	if n, err := Of(-1); err == nil {
		t.Errorf("Of of no socket returned %d, want an error", n)
	}
}

func udp(t *testing.T) (fd int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// refuseCookies lets SO_COOKIE fail for this thread with ENOPROTOOPT, by a seccomp filter.
func refuseCookies(t *testing.T) {
	const option = 16 + 2*8 // struct seccomp_data: the third argument's lower half, of a little-endian processor
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETSOCKOPT, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: option},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SO_COOKIE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Error(err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&program))); err != 0 {
		t.Error(err)
	}
}
