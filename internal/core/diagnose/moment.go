package diagnose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/top"
)

// Bounds of decoded files, in bytes. In memory a malicious file may take a hundred times its size.
const (
	maxText  = 16 << 20 // /metrics or top.json; even 1 MB is unusually large
	maxTrace = 24 << 20 // the flight recorder keeps little more than 8 MB

	maxSeconds = 24 * 3600 // length of a record, which usually takes 5 seconds
)

// moment is a decoded record. A part that could not be read is empty, and the field `missing` has
// the reason.
type moment struct {
	*record.File
	seconds                               float64
	cpu, goroutines, allocs, mutex, block profiled
	begin, end                            samples
	tops                                  []top.View
	broken                                []record.BrokenStore
	growing                               record.Growing
	queries                               []querycost.Row
	sent                                  []record.Sent
	cluster                               record.Cluster
	trace                                 traced
	missing                               map[string]string
}

func readMoment(f *record.File) *moment {
	m := &moment{File: f, seconds: f.Seconds(), missing: map[string]string{}}
	for _, p := range []struct {
		name string
		to   *profiled
	}{
		{record.CPU, &m.cpu}, {record.Goroutines, &m.goroutines}, {record.Allocs, &m.allocs}, {record.Mutex, &m.mutex},
		{record.Block, &m.block},
	} {
		m.part(p.name, maxProfile, func(text []byte) (err error) { *p.to, err = readProfile(text); return err })
	}
	m.part(record.MetricsBegin, maxText, func(text []byte) (err error) { m.begin, err = readSamples(text); return err })
	m.part(record.MetricsEnd, maxText, func(text []byte) (err error) { m.end, err = readSamples(text); return err })
	m.part(record.Top, maxText, func(text []byte) error { return json.Unmarshal(text, &m.tops) })
	m.part(record.Stores, maxText, func(text []byte) error { return json.Unmarshal(text, &m.broken) })
	m.part(record.Growth, maxText, func(text []byte) error { return json.Unmarshal(text, &m.growing) })
	m.part(record.Queries, maxText, func(text []byte) error { return json.Unmarshal(text, &m.queries) })
	m.part(record.Requests, maxText, func(text []byte) error { return json.Unmarshal(text, &m.sent) })
	m.part(record.Nodes, maxText, func(text []byte) error { return json.Unmarshal(text, &m.cluster) })
	for _, younger := range []string{record.Stores, record.Growth, record.Queries, record.Requests, record.Nodes} {
		if _, err := f.ReadUpTo(younger, 0); errors.Is(err, fs.ErrNotExist) {
			delete(m.missing, younger) // an older record
		}
	}
	m.part(record.Trace, maxTrace, func(text []byte) (err error) { m.trace, err = readTrace(text); return err })
	return m
}

// part reads one file. A third-party decoder may panic on malicious input: such a file counts as
// unreadable.
func (m *moment) part(name string, most int64, decode func([]byte) error) {
	defer func() {
		if broken := recover(); broken != nil {
			m.missing[name] = fmt.Sprintf("decode %s: %v", name, broken)
		}
	}()
	text, err := m.ReadUpTo(name, most)
	if err == nil {
		err = decode(text)
	}
	if err != nil {
		m.missing[name] = err.Error()
	}
}

// has(name) reports whether the file was read.
func (m *moment) has(name string) bool { return m.missing[name] == "" }

// cores returns how many processors the process kept busy. The kernel counts them exactly; a
// profile misses some on a full machine.
func (m *moment) cores() float64 {
	used := m.grownBy("process_cpu_seconds_total")
	if !(used > 0) {
		used = m.cpu.total() / 1e9
	}
	const most = 1e6 // no machine has so many processors, but a forged record may claim it
	return min(used/m.seconds, most)
}

// full returns the share of the process's processors that was in use, 0 to 1.
func (m *moment) full() float64 { return m.cores() / float64(max(1, m.GOMAXPROCS)) }

// perSecond returns the increase of a runtime/metrics value, per second.
func (m *moment) perSecond(name string) float64 { return m.Runtime[name].Grown() / m.seconds }

// describe names the sender of datagrams.
func describe(s top.ViewSender) string {
	switch {
	case s.Process != nil && s.Process.Command == "": // the process has exited
		return fmt.Sprintf("process %d", s.Process.PID)
	case s.Process != nil:
		return fmt.Sprintf("process %d (%s)", s.Process.PID, s.Process.Command)
	case s.Address != "":
		return s.Address
	case s.Container != "":
		return "container " + s.Container
	}
	return "an unknown sender"
}
