package files

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/core/journal"
)

const (
	shards     = 1024
	frameBytes = 24 // a frame without its payload has this many bytes: docs/format/journal.md
)

func window(payloadBytes int) []journal.Frame {
	frames := make([]journal.Frame, shards)
	for i := range frames {
		frames[i] = journal.Frame{Shard: uint16(i), Payload: make([]byte, payloadBytes)}
	}
	return frames
}

// cpu returns the CPU time that the process has used, in nanoseconds.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// measure reports the cost of a window of all shards. It cuts a journal on disk from time to time,
// because a full page cache would distort the result.
func measure(b *testing.B, payloadBytes int, append func(), cut func()) {
	b.SetBytes(int64(shards * payloadBytes))
	before := cpu(b)
	n := 0
	for b.Loop() {
		append()
		if n++; n%200 == 0 {
			b.StopTimer()
			cut()
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/window")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*shards), "ns/frame")
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(open)), "descriptors")
}

// Measures the syncs that make one window survive a power loss: one sync of one file, or one sync of
// each of 1,024 files. There is no bound, because the result depends on the disk.
func BenchmarkSyncedWindow(b *testing.B) {
	b.Run("one file", func(b *testing.B) {
		l := open(b)
		frames := window(100)
		for b.Loop() {
			if _, err := l.Append(frames); err != nil {
				b.Fatal(err)
			}
			if err := l.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("file for each shard", func(b *testing.B) {
		logs := openEach(b)
		frame := make([]byte, 100+frameBytes)
		for b.Loop() {
			for _, f := range logs {
				if _, err := f.Write(frame); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func open(b *testing.B) *journal.Log {
	d, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	l, _, err := journal.Open(d, journal.Options{Mark: 0x51f0a7d3})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// openEach is the rejected design (docs/decisions/journal.md): one file for each shard, all
// open.
func openEach(b *testing.B) []*os.File {
	dir := b.TempDir()
	logs := make([]*os.File, shards)
	for i := range logs {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, fileMode)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		logs[i] = f
	}
	return logs
}

// Measures a window of all shards: a frame for each shard, all in one write. Bound: 1 us for a frame of
// 1,000 bytes, so that the journal takes a window within a millisecond.
func BenchmarkWindow(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprint("one file/", size), func(b *testing.B) {
			l := open(b)
			frames := window(size)
			measure(b, size, func() {
				if _, err := l.Append(frames); err != nil {
					b.Fatal(err)
				}
			}, func() {
				c, err := l.BeginCheckpoint()
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Commit(); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(fmt.Sprint("file for each shard/", size), func(b *testing.B) {
			logs := openEach(b)
			frame := make([]byte, size+frameBytes)
			measure(b, size, func() {
				for _, f := range logs {
					if _, err := f.Write(frame); err != nil {
						b.Fatal(err)
					}
				}
			}, func() {
				for _, f := range logs {
					if err := f.Truncate(0); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
