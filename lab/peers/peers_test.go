package peers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A peer can be built, started, asked for its counts and stopped. The test uses statsd, which is small:
// it needs two packages and no compiler.
func TestReceivedEqualsSent(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	p := statsd
	if p.Built(dir) {
		t.Error("built before Build")
	}
	var said bytes.Buffer
	if err := p.Build(ctx, dir, &said); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if !p.Built(dir) {
		t.Error("Built reports false after Build")
	}
	r, err := p.Start(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	const packets, perPacket = 20, 50 // all packets fit into the smallest receive buffer
	send(t, r.UDP, packets, perPacket)
	want := Received{Metrics: packets * perPacket}
	if got := await(t, r, want); got != want {
		t.Errorf("the peer received %+v, want %+v", got, want)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := r.Received(ctx); err == nil {
		t.Error("a peer that has ended still answers")
	}
	if _, err := os.Stat(r.at.dir); !os.IsNotExist(err) {
		t.Errorf("after Stop, the peer's files still exist: %v", err)
	}
}

func send(t *testing.T, address string, packets, perPacket int) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range packets {
		var lines []string
		for i := range perPacket {
			lines = append(lines, fmt.Sprintf("requests.%d:1|c|#env:lab", i))
		}
		if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
			t.Fatal(err)
		}
	}
}

// await asks for the peer's counts until they reach `want`, or until so much time has passed that at
// least one flush must have reported them.
func await(t *testing.T, r *Running, want Received) (got Received) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Flush)
	defer cancel()
	for got.Metrics < want.Metrics && ctx.Err() == nil {
		var err error
		if got, err = r.Received(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return got
}

func TestStartOfAPeerThatIsNotBuilt(t *testing.T) {
	p := veneur
	if _, err := p.Start(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "not built") {
		t.Errorf("for a peer that is not built, Start returned the error %v, want \"not built\"", err)
	}
}

// If a peer does not start, the error contains the peer's output.
func TestAFailedStartShowsThePeersOutput(t *testing.T) {
	p := Peer{plan: func(place) (plan, error) {
		return plan{command: []string{"sh", "-c", "echo no such setting; exit 3"}}, nil
	}}
	_, err := p.start(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such setting") {
		t.Errorf("the error lacks the peer's output: %v", err)
	}
}

// Each peer's settings contain the address at which it receives, and the flush interval that all peers
// share.
func TestPlans(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) {
			at := place{program: "/program", dir: t.TempDir(), udp: "127.0.0.1:18125", admin: "127.0.0.1:18126"}
			if p.Unixgram {
				at.unixgram = "/socket"
			}
			plan, err := p.plan(at)
			if err != nil {
				t.Fatal(err)
			}
			// The plan may have a function that runs beside the peer and ends with it. Here the function ends at
			// once.
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if plan.beside != nil {
				plan.beside(ended)
			}
			settings := strings.Join(plan.command, "\n")
			files, err := filepath.Glob(filepath.Join(at.dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				settings += "\n" + string(text)
			}
			for _, want := range []string{"/program", "18125", at.unixgram} {
				if !strings.Contains(settings, want) {
					t.Errorf("%q is not set:\n%s", want, settings)
				}
			}
			scraped := p.Name == statsdExporter.Name // scraping takes the place of a flush
			if !scraped && !strings.Contains(settings, "10s") && !strings.Contains(settings, "10000") {
				t.Errorf("the settings lack the flush interval of 10 s:\n%s", settings)
			}
			if strings.Contains(settings, "%!") {
				t.Errorf("a setting has no value:\n%s", settings)
			}
		})
	}
}

// The versions on the page are the versions that the folders pin.
func TestVersions(t *testing.T) {
	for _, p := range All() {
		file, pinned := filepath.Join(p.Name, "go.mod"), " "+p.Version
		if p.Language == "JavaScript" {
			file, pinned = filepath.Join(p.Name, "package.json"), `"`+p.Name+`": "`+p.Version+`"`
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), pinned) {
			t.Errorf("%s does not pin version %s of %s", file, p.Version, p.Name)
		}
	}
}

func sample(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each peer's counters are read correctly from real output of the version in the file's name.
func TestCounters(t *testing.T) {
	exporter := func(page []byte) (Received, error) {
		n, err := counter(page, statsdExporterLines, "")
		return Received{Metrics: n}, err
	}
	sent := func(packet []byte) (Received, error) { return Received{Metrics: veneurReceived(packet)}, nil }
	for _, c := range []struct {
		sample string
		read   func([]byte) (Received, error)
		want   Received
	}{
		{"statsd_exporter-v0.31.0.txt", exporter, Received{Metrics: 1250}},
		{"gostatsd-e5cc67e82525.txt", gostatsdReceived, Received{Metrics: 2000 + 457}}, // good and bad lines
		{"telegraf-v1.37.2.txt", telegrafReceived, Received{Datagrams: 1250}},
		{"veneur-v14.2.0.txt", sent, Received{Metrics: 1000}},
		{"otelcol-v0.160.0.txt", otelcolReceived, Received{Metrics: 1000 + 200}}, // good lines, and hundreds of bad lines
	} {
		t.Run(c.sample, func(t *testing.T) {
			got, err := c.read(sample(t, c.sample))
			if err != nil || got != c.want {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestAnswersOfStatsd(t *testing.T) {
	answers := bufio.NewScanner(bytes.NewReader(sample(t, "statsd-0.9.0.txt")))
	for _, want := range []uint64{2333, 0} { // the counts of earlier flushes, and the counts since the last flush
		answer, err := statsdAnswer(answers)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := statsdReceived(answer); err != nil || got != want {
			t.Errorf("got %d, error %v; want %d from the answer\n%s", got, err, want, answer)
		}
	}
	if answer, err := statsdAnswer(answers); err == nil {
		t.Errorf("an incomplete answer was accepted: %q", answer)
	}
}

// Telegraf's counters are read correctly even while Telegraf writes them.
func TestUnfinishedLineOfTelegraf(t *testing.T) {
	whole := "internal_statsd udp_packets_dropped=2i,udp_packets_received=12i 1\n"
	for text, want := range map[string]Received{
		"":                            {},
		"internal_statsd udp_packets": {},
		whole:                         {Datagrams: 10},
		whole + "internal_statsd udp_packets_received=1": {Datagrams: 10},
	} {
		if got, err := telegrafReceived([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, error %v; want %+v", text, got, err, want)
		}
	}
	if _, err := telegrafReceived([]byte("internal_statsd udp_bytes_received=1i 1\n")); err == nil {
		t.Error("a line without the counter was accepted")
	}
}

func TestCounterOfAPage(t *testing.T) {
	page := []byte("# HELP a_total a_total of a 7\na_total{k=\"x y\"} 1e+06\na_total{k=\"z\"} 2\na_total_else 4\n")
	for label, want := range map[string]uint64{"": 1_000_002, `k="z"`: 2, `k="none"`: 0} {
		if got, err := counter(page, "a_total", label); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", label, got, err, want)
		}
	}
	if _, err := counter([]byte("a_total many\n"), "a_total", ""); err == nil {
		t.Error("a value that is not a number was accepted")
	}
}
