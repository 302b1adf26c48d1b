package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Kernel drops: the kernel drops datagrams that arrive while the socket's buffer is full. The
// reader is too slow, or it stopped for longer than the buffer lasts. A Unix datagram socket has a
// queue of some datagrams instead of a buffer of bytes. When the queue is full, the sender gets an
// error, and most clients drop the datagram. Only clients know of such drops, and some report them
// in their telemetry.
const (
	dropsUsual = 1     // dropped datagrams a second; so few are no cause
	shareUsual = 0.001 // part of all arriving datagrams that is dropped
	shareBad   = 0.02

	dropsListed = 3 // listeners

	// usualBuffer is the default of dogstatsd.receive_buffer, in bytes.
	usualBuffer = 4 << 20

	// datagramCharge is the number of bytes that a short datagram takes in the kernel's buffer. The
	// kernel makes this buffer twice as large as requested.
	datagramCharge = 832
)

const (
	dropsMetric       = "freshet_dogstatsd_kernel_dropped_packets_total"
	clientDropsMetric = "freshet_dogstatsd_client_dropped_packets_total"
	packetsMetric     = "freshet_dogstatsd_packets_total"
	bufferMetric      = "freshet_dogstatsd_receive_buffer_bytes"
	wantedMetric      = "freshet_dogstatsd_receive_buffer_wanted_bytes"
	tooSmallMetric    = "freshet_dogstatsd_setting_too_small"

	queueSetting  = "net.unix.max_dgram_qlen"
	bufferSetting = "net.core.rmem_max"
)

// dropping describes a listener whose datagrams were dropped.
type dropping struct {
	listener        string
	kernel, clients float64 // datagrams that the kernel dropped; datagrams that clients report as dropped

	// granted and wanted are sizes of the receive buffer in bytes. They are 0 if the record has no
	// such metric: the listener has no buffer, or an older program wrote the record.
	granted, wanted float64

	shortQueue bool
}

func kernelDrops(m *moment) finding {
	all := m.dropping()
	drops, read := 0.0, m.grownBy(packetsMetric)
	for i := range all {
		drops += all[i].kernel + all[i].clients
	}
	share := 0.0
	if drops > 0 {
		share = drops / (drops + read)
	}
	f := finding{fine: fmt.Sprintf("the kernel dropped %s of %s datagrams", count(drops), count(drops+read))}
	if !m.has(record.MetricsBegin) || !m.has(record.MetricsEnd) {
		f.fine = "kernel drops: unknown, since metrics are missing"
	}
	f.Name = KernelDrops
	if drops/m.seconds > dropsUsual {
		f.Score = ramp(share, shareUsual, shareBad)
	}
	f.Because = fmt.Sprintf("%s of the datagrams found the socket's buffer full: score 0 up to %s, 1 from %s",
		percent(share), percent(shareUsual), percent(shareBad))
	f.Title, f.Next = "The kernel drops no datagrams", "Nothing to do."
	if len(all) > 0 {
		f.Title = all[0].title(drops/m.seconds, share)
		f.Next = all[0].wayOut()
	}
	for i := range all[:min(len(all), dropsListed)] {
		f.Evidence = append(f.Evidence, all[i].evidence())
	}
	f.Evidence = append(f.Evidence, m.socketReader()...)
	return f
}

// dropping returns the listeners whose datagrams were dropped. The listener with the most drops
// comes first.
func (m *moment) dropping() (all []dropping) {
	by := func(values []labelled) map[string]labelled {
		found := map[string]labelled{}
		for _, l := range values {
			found[l.labels["listener"]] = l
		}
		return found
	}
	clients, granted, wanted := by(m.grown(clientDropsMetric)), by(m.end.of(bufferMetric)), by(m.end.of(wantedMetric))
	short := by(above(m.end, tooSmallMetric))
	for _, l := range m.grown(dropsMetric) {
		name := l.labels["listener"]
		d := dropping{listener: name, kernel: l.value, granted: granted[name].value, wanted: wanted[name].value}
		if strings.HasPrefix(name, "unixgram:") { // over UDP, a client counts drops only while no server listens
			d.clients = clients[name].value
			_, d.shortQueue = short[name]
		}
		if d.kernel+d.clients > 0 {
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b dropping) int { return cmp.Compare(b.kernel+b.clients, a.kernel+a.clients) })
	return all
}

// isQueue reports whether datagrams were dropped only at a Unix socket's queue.
func (d *dropping) isQueue() bool { return d.kernel == 0 }

func (d *dropping) title(perSecond, share float64) string {
	if d.isQueue() {
		return fmt.Sprintf("Clients drop datagrams: %s a second, %s of theirs, because the queue of %s is full",
			count(perSecond), percent(share), clip(d.listener))
	}
	text := fmt.Sprintf("The kernel drops datagrams: %s a second, %s of those that come, "+
		"because they are not read fast enough", count(perSecond), percent(share))
	if d.granted > 0 {
		text += fmt.Sprintf("; the receive buffer of %s has %s", clip(d.listener), sizeText(d.granted))
	}
	return text
}

func (d *dropping) evidence() Evidence {
	what := fmt.Sprintf("listener %s: %s datagrams dropped", clip(d.listener), count(d.kernel+d.clients))
	switch {
	case d.isQueue():
		what += " by clients, as their telemetry says (packets_dropped_writer)"
		if d.shortQueue {
			what += "; " + queueSetting + " is too small"
		}
	case d.granted < d.wanted:
		what += fmt.Sprintf("; dogstatsd.receive_buffer asks for %s, and %s caps it at %s, room for %s short datagrams",
			sizeText(d.wanted), bufferSetting, sizeText(d.granted), d.room())
	case d.granted > 0:
		what += fmt.Sprintf("; its receive buffer (dogstatsd.receive_buffer) has %s, room for %s short datagrams",
			sizeText(d.granted), d.room())
	}
	return Evidence{What: what}
}

// room returns how many short datagrams fit into the buffer.
func (d *dropping) room() string { return count(math.Floor(2 * d.granted / datagramCharge)) }

func (d *dropping) wayOut() string {
	const readers = "If the stages read and parse take long all the time, add dogstatsd.readers, " +
		"or have clients put more metrics into a datagram."
	switch {
	case d.isQueue() && d.shortQueue:
		return fmt.Sprintf("Run sysctl -w %s=512, then stop and start Freshet: a restart in place keeps the socket and "+
			"its queue. The receive buffer does not matter for this socket.", queueSetting)
	case d.isQueue():
		return "The queue is long enough for a reader that keeps up: see what keeps the processors busy. " +
			"Clients that aggregate, or put more metrics into a datagram, send less."
	case d.granted < d.wanted:
		return fmt.Sprintf("Run sysctl -w %s=%.0f and restart, or give the process CAP_NET_ADMIN: "+
			"raising dogstatsd.receive_buffer alone changes nothing. %s", bufferSetting, d.wanted, readers)
	case d.granted > 0 && d.granted < usualBuffer:
		return fmt.Sprintf("Raise dogstatsd.receive_buffer, which is %s, to %s, the default, or leave it out. %s",
			sizeText(d.granted), sizeText(usualBuffer), readers)
	}
	return fmt.Sprintf("If datagrams come in bursts, raise dogstatsd.receive_buffer, and also %s if that is lower "+
		"than the new size. %s", bufferSetting, readers)
}

// sizeText formats a size as in the configuration.
func sizeText(n float64) string {
	if n > 1<<50 {
		return bytesText(n)
	}
	return conf.Bytes(n).String()
}

// socketReader describes what the readers of the sockets did.
func (m *moment) socketReader() (all []Evidence) {
	for _, l := range m.grown("freshet_stage_seconds") {
		if stage := l.labels["stage"]; l.count > 0 && l.labels["input"] == "dogstatsd" &&
			(stage == "read" || stage == "parse") {
			all = append(all,
				Evidence{What: fmt.Sprintf("the DogStatsD readers: stage %s took %s per batch of datagrams on average",
					stage, seconds(l.value/l.count))})
		}
	}
	reader := m.goroutines.groups(func(s stack) string {
		if i := s.index(func(name string) bool {
			return strings.HasPrefix(name, ourModule+"internal/adapter/sockets.")
		}); i >= 0 {
			return s[i]
		}
		return ""
	})
	if len(reader) > 0 {
		all = append(all, Evidence{What: "where a reader was when the record began", Stack: reader[0].stack.shown()})
	}
	return all
}
