package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// books has the parts of the ledger of one process that these tests read.
type books struct {
	Samples struct {
		Received, Restored               uint64
		Malformed, Refused, Late, Unsent map[string]uint64
		Discarded                        map[string]uint64
		Window, Tile, Stored             uint64
		Difference                       int64
		OfWhich                          struct {
			Folded   uint64
			LateKept uint64 `json:"late_kept"`
		} `json:"of_which"`
	}
	Datagrams struct {
		Received, Read, Oversized uint64
		KernelDropped             uint64 `json:"kernel_dropped"`
	}
	Clients map[string]float64
}

// ledger returns the ledger of this process and of the previous process.
func (p *process) ledger() (now books, previous *books, err error) {
	var answer struct {
		books
		Previous *struct {
			books
			Final bool
		}
	}
	if err = p.ask("/api/v1/status/ledger", nil, &answer); err != nil {
		return now, nil, err
	}
	if answer.Previous != nil && answer.Previous.Final {
		previous = &answer.Previous.books
	}
	return answer.books, previous, nil
}

// ended returns how many samples have their final state.
func (b *books) ended() (n uint64) {
	for _, reasons := range []map[string]uint64{b.Samples.Malformed, b.Samples.Refused, b.Samples.Late, b.Samples.Unsent,
		b.Samples.Discarded} {
		for _, samples := range reasons {
			n += samples
		}
	}
	return n + b.Samples.Stored
}

// TestTheBooksClose checks that the ledger accounts for every datagram that the kernel accepted, and
// for its sample: the difference is 0. It sends three times what the server can read. Some lines are
// malformed, negative, dropped by a rule, too long, too late or of new series. Meanwhile it restarts
// the server, once in place, and once with a stop and a start.
//
// 3 rounds of overload in CI, 100 in `make soak`.
func TestTheBooksClose(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel() // it mostly waits for tiles
			sockets := activate(t)
			file := filepath.Join(sockets.dir, "freshet.yaml")
			if err := os.WriteFile(file, []byte(booksConfig), 0o644); err != nil {
				t.Fatal(err)
			}
			begin := func() *process { return launch(t, sockets.dir, sockets.command(t, "--config", file)) }
			p := begin()
			s := &bookSender{conn: dialTap(t, network, map[string]string{"udp": p.UDP, "unixgram": p.Unixgram}[network])}
			overload(t, p, s)

			var lives []books
			for _, restart := range []func(){
				func() { p.terminate(t); p = begin() },
				func() {
					if _, said, err := p.restart(t); err != nil {
						t.Fatal(err, said)
					}
				},
			} {
				stop := s.keepSending(t, 2000)
				restart()
				stop()
				_, previous, err := p.ledger()
				if err != nil || previous == nil {
					t.Fatalf("there is no ledger of the previous process: %v", err)
				}
				lives = append(lives, *previous)
			}
			last := settled(t, p, lives, s.sent)
			checkBooks(t, append(lives, last), s)
		})
	}
}

const booksConfig = `
dogstatsd: {max_packet: 4096}
limits: {max_series_per_metric: 20}
mapping: {rules: [{match: noise, action: drop}]}
`

// bookSender sends datagrams of one sample each.
type bookSender struct {
	conn    net.Conn
	sent    uint64 // datagrams that the kernel took
	refused uint64 // datagrams for which a Unix socket was full; UDP does not report this
}

// next returns the line of the next datagram. In each hundred lines, each kind of problem occurs once.
func (s *bookSender) next() string {
	i := s.sent
	switch i % 100 {
	case 0:
		return "broken"
	case 1:
		return "books.load:-1|c"
	case 2:
		return fmt.Sprintf("books.flood:1|c|#id:%d", i)
	case 3:
		return fmt.Sprintf("books.depth:1|g|#id:%d", i)
	case 4:
		return fmt.Sprintf("books.late:1|g|T%d", time.Now().Add(-time.Hour).Unix())
	case 5:
		return fmt.Sprintf("books.load:1|c|T%d", time.Now().Add(-10*time.Minute).Unix())
	case 6:
		return "books.long:1|c|#x:" + strings.Repeat("x", 5000)
	case 7:
		return "noise:1|c"
	}
	return fmt.Sprintf("books.load:1|c|#n:%d", i%50)
}

// send makes one attempt. It does not wait while a socket is full.
func (s *bookSender) send(t *testing.T) {
	raw, err := s.conn.(syscall.Conn).SyscallConn()
	if err == nil {
		line := []byte(s.next())
		if failed := raw.Write(func(fd uintptr) bool { _, err = syscall.Write(int(fd), line); return true }); failed != nil {
			err = failed
		}
	}
	switch {
	case err == nil:
		s.sent++
	case errors.Is(err, syscall.EAGAIN):
		s.refused++
	default:
		t.Errorf("after %d datagrams: %v", s.sent, err)
	}
}

// keepSending sends `perSecond` datagrams a second until `stop` is called.
func (s *bookSender) keepSending(t *testing.T, perSecond int) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				for range perSecond / 100 {
					s.send(t)
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// overload sends more than three times what the server can read. The server is paused while most of
// the datagrams are sent, so it is overloaded on any machine. Datagrams that a Unix socket refuses
// count as sent here.
func overload(t *testing.T, p *process, s *bookSender) {
	t.Helper()
	rounds := 3
	if soak {
		rounds = 100
	}
	for range rounds {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for range 60_000 {
			s.send(t)
		}
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for sent := s.sent; s.sent < sent+5000; { // while the server reads
			s.send(t)
		}
	}
	var now books
	eventually(t, 30*time.Second, "the socket is empty", func() (err error) {
		if now, _, err = p.ledger(); err == nil && now.Datagrams.Received != s.sent {
			err = fmt.Errorf("%d of %d datagrams are in the books", now.Datagrams.Received, s.sent)
		}
		return err
	})
	offered := s.sent + s.refused
	t.Logf("%d datagrams were offered, of which a Unix socket refused %d; the server read %d, one of %.1f",
		offered, s.refused, now.Datagrams.Read, float64(offered)/float64(now.Datagrams.Read))
	if offered < 3*now.Datagrams.Read {
		t.Error("the server read more than a third of the datagrams, so this test checks nothing")
	}
}

// settled is a check that waits until every datagram is in the ledger of one of the processes and every
// tile is stored. It returns the ledger of the last process.
func settled(t *testing.T, p *process, before []books, sent uint64) (now books) {
	t.Helper()
	eventually(t, time.Minute, "the books settle", func() (err error) {
		if now, _, err = p.ledger(); err != nil {
			return err
		}
		seen := now.Datagrams.Received
		for _, b := range before {
			seen += b.Datagrams.Received
		}
		if seen < sent || now.Samples.Window+now.Samples.Tile > 0 {
			return fmt.Errorf("the books have %d of %d datagrams; %d samples are in windows, %d in tiles",
				seen, sent, now.Samples.Window, now.Samples.Tile)
		}
		return nil
	})
	return now
}

func checkBooks(t *testing.T, lives []books, s *bookSender) {
	t.Helper()
	var datagrams, read, dropped, oversized, received, ended uint64
	carried := uint64(0) // samples in tiles when the previous process ended
	for i, b := range lives {
		if b.Samples.Difference != 0 {
			t.Errorf("process %d: the difference is %d, want 0", i, b.Samples.Difference)
		}
		if b.Samples.Restored != carried {
			t.Errorf(
				"process %d began with %d samples in tiles, but the previous process ended with %d", i, b.Samples.Restored, carried)
		}
		if b.Samples.Window != 0 {
			t.Errorf("process %d ended with %d samples in windows, want none", i, b.Samples.Window)
		}
		carried = b.Samples.Tile
		datagrams += b.Datagrams.Received
		read += b.Datagrams.Read
		dropped += b.Datagrams.KernelDropped
		oversized += b.Datagrams.Oversized
		received += b.Samples.Received
		ended += b.ended()
		t.Logf("process %d: %+v", i, b)
	}
	t.Logf("%d sent = %d read + %d dropped by the kernel + %d oversized; of %d samples %d are stored, refused, "+
		"malformed or late: difference %d",
		s.sent, read, dropped, oversized, received, ended, int64(received)-int64(ended))
	if datagrams != s.sent || read+dropped+oversized != s.sent {
		t.Errorf("the books have %d datagrams, want the %d that were sent", datagrams, s.sent)
	}
	if received != read || ended != received {
		t.Errorf("the books have %[2]d samples, %[3]d of them in a final state; want both to be %[1]d, one for each "+
			"datagram read",
			read, received, ended)
	}
	// Each kind of problem must have occurred, or the test does not check it.
	all := map[string]uint64{}
	for _, b := range lives {
		for _, reasons := range []map[string]uint64{b.Samples.Malformed, b.Samples.Refused, b.Samples.Late} {
			for reason, n := range reasons {
				all[reason] += n
			}
		}
		all["folded"] += b.Samples.OfWhich.Folded
		all["late_kept"] += b.Samples.OfWhich.LateKept
		all["oversized"] += b.Datagrams.Oversized
		if _, udp := s.conn.(*net.UDPConn); udp {
			all["kernel_dropped"] += b.Datagrams.KernelDropped
		} else {
			all["kernel_dropped"] += s.refused
		}
	}
	for _, reason := range []string{"no_type", "negative", "rule", "metric_series", "late_gauge", "late_kept", "folded",
		"oversized", "kernel_dropped"} {
		if all[reason] == 0 {
			t.Errorf("no sample or datagram was counted as %s", reason)
		}
	}
}

// TestTheLedgerHasWhatClientsDropped checks that the ledger has exactly as many dropped datagrams as a
// real client reports. The server is paused while the client sends, so that the server's socket is full.
func TestTheLedgerHasWhatClientsDropped(t *testing.T) {
	t.Parallel() // the test mostly waits, since clients report every ten seconds
	p := start(t, dataDir(t))
	c, err := statsd.New("unix://"+p.Unixgram, statsd.WithoutClientSideAggregation(), statsd.WithMaxMessagesPerPayload(1),
		statsd.WithSenderQueueSize(64), statsd.WithWriteTimeout(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		_ = c.Incr("books.client", nil, 1) // errors are expected
	}
	_ = c.Flush()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the ledger has the client's own counts", func() error {
		now, _, err := p.ledger()
		if err != nil {
			return err
		}
		dropped := float64(c.GetTelemetry().TotalPayloadsDropped)
		if got := now.Clients["packets_dropped"]; dropped == 0 || got != dropped {
			return fmt.Errorf("the client dropped %v datagrams, the books say %v", dropped, got)
		}
		if sent, got := float64(c.GetTelemetry().TotalPayloadsSent), now.Clients["packets_sent"]; got > sent || got == 0 {
			return fmt.Errorf("the client sent %v datagrams, the books say %v", sent, got)
		}
		return nil
	})
}
