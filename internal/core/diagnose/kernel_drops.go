package diagnose

import (
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/record"
)

// Kernel drops: datagrams come and the socket's buffer is full, since nobody reads fast
// enough, or nobody read for longer than the buffer lasts.
const (
	dropsUsual = 1     // datagrams a second: a few are no cause
	shareUsual = 0.001 // of the datagrams that came
	shareBad   = 0.02
)

const dropsMetric, packetsMetric = "freshet_dogstatsd_kernel_dropped_packets_total", "freshet_dogstatsd_packets_total"

func kernelDrops(m *moment) finding {
	drops, read := m.grownBy(dropsMetric), m.grownBy(packetsMetric)
	share := 0.0
	if drops > 0 {
		share = drops / (drops + read)
	}
	f := finding{fine: fmt.Sprintf("the kernel dropped %s of %s datagrams that came", count(drops), count(drops+read))}
	if !m.has(record.MetricsBegin) || !m.has(record.MetricsEnd) {
		f.fine = "kernel drops: nobody knows, for metrics are missing"
	}
	f.Name = KernelDrops
	if drops/m.seconds > dropsUsual {
		f.Score = ramp(share, shareUsual, shareBad)
	}
	f.Title = fmt.Sprintf("The kernel drops datagrams: %s a second, %s of those that come, since nobody reads them fast enough", count(drops/m.seconds), percent(share))
	f.Because = fmt.Sprintf("%s of the datagrams that came found the socket's buffer full: nothing below %s, all from %s on", percent(share), percent(shareUsual), percent(shareBad))
	all := m.grown(dropsMetric)
	slices.SortFunc(all, func(a, b labelled) int { return int(max(-1, min(1, b.value-a.value))) })
	for _, l := range all {
		if l.value > 0 && len(f.Evidence) < 3 {
			f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("listener %s: %s datagrams dropped", clip(l.labels["listener"]), count(l.value))})
		}
	}
	for _, l := range m.end.of("freshet_dogstatsd_setting_too_small") {
		if l.value > 0 && len(f.Evidence) < 6 {
			f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("listener %s: the kernel gives it a smaller receive buffer than dogstatsd.receive_buffer asks for; raise net.core.rmem_max", clip(l.labels["listener"]))})
		}
	}
	for _, l := range m.grown("freshet_stage_seconds") {
		if stage := l.labels["stage"]; l.count > 0 && l.labels["input"] == "dogstatsd" && (stage == "read" || stage == "parse") {
			f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("its reader: stage %s took %s a batch of datagrams", stage, seconds(l.value/l.count))})
		}
	}
	reader := m.goroutines.groups(func(s stack) string {
		if i := s.index(func(name string) bool { return hasPrefix(name, ourModule+"internal/adapter/sockets.") }); i >= 0 {
			return s[i]
		}
		return ""
	})
	if len(reader) > 0 {
		f.Evidence = append(f.Evidence, Evidence{What: "where a reader stood when the record began", Stack: reader[0].stack.shown()})
	}
	f.Next = "If it is bursts, raise dogstatsd.receive_buffer (and net.core.rmem_max). If the stages read and parse take long all the time, add dogstatsd.readers, or have clients put more metrics into a datagram."
	return f
}
