package peer

import (
	"crypto/tls"
	"io"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/core/member"
)

// cpu returns the CPU time of the process, in nanoseconds.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

const benchSize = 1 << 20 // bytes of an entry

// BenchmarkEntries sends entries of 1 MiB from one node to another over loopback, both in this process.
//
// Bound: at most 3 times the CPU of BenchmarkTLS, which sends the same bytes. Leaders send each entry twice,
// so 10 MB/s of entries cost less than a tenth of a core, on all nodes together.
func BenchmarkEntries(b *testing.B) {
	all := nodes(b, "a", "b")
	a, received := all["a"], all["b"].handler.received
	m := appended(b, 1, 2, 1, make([]byte, benchSize))
	a.Send([]member.Message{m})
	next(b, received)
	b.SetBytes(benchSize)
	from := cpu(b)
	room := make(chan struct{}, 16) // entries in flight; as many as Raft's maxInflightSum
	b.ResetTimer()
	go func() {
		for range b.N {
			room <- struct{}{}
			a.Send([]member.Message{m})
		}
	}()
	for range b.N {
		<-received
		<-room
	}
	b.ReportMetric(float64(cpu(b)-from)/float64(b.N)/1000, "cpu-us/MiB")
}

// BenchmarkTLS is the baseline for BenchmarkEntries.
func BenchmarkTLS(b *testing.B) {
	anyone := func(Identity) error { return nil }
	l := tls.NewListener(listen(b, "127.0.0.1:0"), nodeCredentials(b, secret(b), "b").config(anyone))
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.CopyN(io.Discard, conn, int64(b.N)*benchSize)
		}
		done <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), nodeCredentials(b, secret(b), "a").config(anyone))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	data := make([]byte, benchSize)
	b.SetBytes(benchSize)
	from := cpu(b)
	b.ResetTimer()
	for range b.N {
		if _, err := conn.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpu(b)-from)/float64(b.N)/1000, "cpu-us/MiB")
}
