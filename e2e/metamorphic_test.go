package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variant is one way to send the same lines.
type variant struct {
	name        string
	network     string
	sockets     int  // senders, which take turns
	packetBytes int  // lines are joined into packets up to this length
	readers     int  // sockets of the server that share the UDP address
	restarts    bool // the server restarts between the two halves of the lines
}

var variants = []variant{
	{name: "udp", network: "udp", sockets: 1, packetBytes: 1432, readers: 1},
	{name: "line", network: "udp", sockets: 1, packetBytes: 1, readers: 1},
	{name: "one", network: "udp", sockets: 1, packetBytes: 60_000, readers: 1},
	{name: "dgram", network: "unixgram", sockets: 3, packetBytes: 1432, readers: 1},
	{name: "stream", network: "unix", sockets: 5, packetBytes: 1432, readers: 1},
	{name: "eight", network: "udp", sockets: 64, packetBytes: 200, readers: 8},
	{name: "eight-dgram", network: "unixgram", sockets: 1, packetBytes: 8192, readers: 8},
	{name: "again", network: "udp", sockets: 1, packetBytes: 1432, readers: 1, restarts: true},
	{name: "again-line", network: "unixgram", sockets: 1, packetBytes: 1, readers: 1, restarts: true},
	{name: "again-eight", network: "udp", sockets: 64, packetBytes: 200, readers: 8, restarts: true},
}

// TestTheSameInputGivesTheSameTiles checks that the same lines give the same tile, bit by bit,
// however they are sent: the number of readers, the kind of socket, the packing of lines, and a
// restart of the server make no difference. The values are chosen so that sums are exact in any
// order. A variant that a busy machine did not send within one tile is sent again, under other
// names.
func TestTheSameInputGivesTheSameTiles(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	servers := map[string]*process{}
	at := func(v variant) string { return fmt.Sprintf("%d readers, restarts: %t", v.readers, v.restarts) }
	for _, v := range variants {
		if servers[at(v)] == nil {
			servers[at(v)] = start(t, dataDir(t), "--dogstatsd-readers", strconv.Itoa(v.readers))
		}
	}
	restart := func(v variant) *process {
		old := servers[at(v)]
		old.terminate(t)
		servers[at(v)] = start(t, old.dataDir, "--dogstatsd-readers", strconv.Itoa(v.readers))
		return servers[at(v)]
	}
	sent := make([]sentIn, 0, len(variants))
	for try := 0; len(sent) < len(variants); try++ {
		if try == maxTiles {
			t.Fatalf("%s and later variants were not sent within one tile each, in %d tiles", variants[len(sent)].name, try)
		}
		end := time.Now().Truncate(tileWidth).Add(2 * tileWidth)
		reach(end.Add(-tileWidth).Add(50 * time.Millisecond))
		for _, v := range variants[len(sent):] {
			prefix := fmt.Sprintf("same.%s.%d.", v.name, try)
			sendVariant(t, v, prefix, servers[at(v)], restart)
			if time.Now().Add(1100 * time.Millisecond).After(end) {
				break // the tile lacks the last windows
			}
			sent = append(sent, sentIn{prefix: promName(prefix), end: end})
		}
	}
	compareTiles(t, sent, func(v variant) *process { return servers[at(v)] })
}

const maxTiles = 20 // a quiet machine needs one

// sentIn is the tile that has a variant's lines.
type sentIn struct {
	prefix string // of the metrics' names
	end    time.Time
}

// sendVariant sends the first half of the lines, restarts the server if the variant has restarts, and
// sends the rest.
func sendVariant(t *testing.T, v variant, prefix string, p *process, restart func(variant) *process) {
	t.Helper()
	all := sameLines()
	sendAs(t, p, v, prefix, all[:len(all)/2])
	if v.restarts {
		p = restart(v)
	}
	sendAs(t, p, v, prefix, all[len(all)/2:])
	// A gauge keeps the value of the line that is read last, so gauges are sent after all other
	// lines are read.
	sendAs(t, p, v, prefix, lastLines())
}

// sameLines are the lines that every variant sends; %s is the variant's prefix.
func sameLines() (lines []string) {
	for i := range 300 {
		lines = append(lines,
			fmt.Sprintf("%%shits:%d|c|#route:%d,code:200", i%7, i%5),
			fmt.Sprintf("%%shits:1|c|#code:200,route:%d", i%5), // the same series as above
			fmt.Sprintf("%%ssampled:3|c|@%s", []string{"0.5", "0.25", "1"}[i%3]),
			fmt.Sprintf("%%squery:%d|ms|#table:t%d", 1+i*i%977, i%3),
			fmt.Sprintf("%%ssize:%d:%d:0|h|@0.5", i, 3*i),
			fmt.Sprintf("%%sdist:-%d|d", i),
			fmt.Sprintf("%%susers:u%d|s", i%120),
			fmt.Sprintf("%%sdepth:%d|g|#queue:q%d", i, i%4),
			fmt.Sprintf("_sc|%%sdb|%d|#shard:%d", i%4, i%2),
		)
	}
	return lines
}

func lastLines() (lines []string) {
	for i := range 4 {
		lines = append(lines, fmt.Sprintf("%%sdepth:%d.5|g|#queue:q%d", 100+i, i))
	}
	return append(lines, "_sc|%sdb|2|#shard:0", "_sc|%sdb|1|#shard:1")
}

// sendAs sends lines as the variant does, and waits until the server has read all of them.
func sendAs(t *testing.T, p *process, v variant, prefix string, lines []string) {
	t.Helper()
	read := func() float64 {
		n, err := p.ownMetric("freshet_dogstatsd_packets_total")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, sent := read(), 0.0
	arrived := func() {
		eventually(t, 20*time.Second, v.name+": all packets are read", func() error {
			if n := read() - before; n != sent {
				return fmt.Errorf("%v of %v packets are read", n, sent)
			}
			return nil
		})
	}
	var conns []net.Conn
	for range v.sockets {
		conn, err := net.Dial(v.network, map[string]string{"udp": p.UDP, "unixgram": p.Unixgram, "unix": p.Unix}[v.network])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for packet := range packets(prefix, lines, v.packetBytes) {
		if v.network == "unix" {
			packet = append(binary.LittleEndian.AppendUint32(nil, uint32(len(packet))), packet...)
		}
		if _, err := conns[int(sent)%len(conns)].Write(packet); err != nil {
			t.Fatal(err)
		}
		if sent++; int(sent)%200 == 0 {
			arrived() // waits, so that a small receive buffer does not overflow
		}
	}
	arrived()
}

// packets joins lines up to a length.
func packets(prefix string, lines []string, length int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		var packet []byte
		for _, line := range lines {
			line = fmt.Sprintf(line, prefix)
			if len(packet) > 0 && len(packet)+1+len(line) > length {
				if !yield(packet) {
					return
				}
				packet = nil
			}
			if len(packet) > 0 {
				packet = append(packet, '\n')
			}
			packet = append(packet, line...)
		}
		if len(packet) > 0 {
			yield(packet)
		}
	}
}

// compareTiles compares the tile of every variant with the tile of the first variant, and that tile
// with the sent values. sent has the tile of each variant.
func compareTiles(t *testing.T, sent []sentIn, server func(variant) *process) {
	t.Helper()
	const series = 5 + 1 + 3 + 1 + 1 + 1 + 4 + 2
	var want map[string]string
	for i, v := range variants {
		var got map[string]string
		eventually(t, time.Minute, v.name+": its tile is stored", func() error {
			got = server(v).tilesUpTo(t, sent[i].end, sent[i].prefix)
			stored := 0 // a series whose tile still grows has the time of its last window
			for _, samples := range got {
				if strings.Contains(samples, "+0.000 s: ") {
					stored++
				}
			}
			if stored != series {
				return fmt.Errorf("the tile is stored of %d series, want %d", stored, series)
			}
			return nil
		})
		if i == 0 {
			want = got
			checkSent(t, server(v), sent[i].end, sent[i].prefix)
			continue
		}
		for _, series := range slices.Sorted(maps.Keys(want)) {
			if got[series] != want[series] {
				t.Errorf("variant %s: %s\n is %s\nwant %s", v.name, series, got[series], want[series])
			}
		}
		conflicts(t, server(v))
	}
}

// tilesUpTo returns the stored samples of the minute before a tile's end, by series, with times
// relative to that end. Histograms have all their buckets.
func (p *process) tilesUpTo(t *testing.T, end time.Time, prefix string) map[string]string {
	t.Helper()
	var data struct {
		Result []struct {
			Metric     map[string]string
			Values     [][2]json.RawMessage
			Histograms [][2]json.RawMessage
		}
	}
	params := url.Values{
		"query": {fmt.Sprintf("{__name__=~%q}[59s]", prefix+".+")}, "time": {strconv.FormatInt(end.Unix(), 10)},
	}
	if err := p.ask("/api/v1/query", params, &data); err != nil {
		t.Fatal(err)
	}
	tiles := map[string]string{}
	for _, r := range data.Result {
		r.Metric["__name__"] = strings.TrimPrefix(r.Metric["__name__"], prefix)
		var b strings.Builder
		for _, sample := range append(r.Values, r.Histograms...) {
			at, err := strconv.ParseFloat(string(sample[0]), 64)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%+.3f s: %s; ", at-float64(end.Unix()), sample[1])
		}
		tiles[selector(r.Metric)] = b.String()
	}
	return tiles
}

// checkSent compares the tile with sums that are computed here in another way.
func checkSent(t *testing.T, p *process, end time.Time, prefix string) {
	t.Helper()
	hits, sampled, query, size := 0, 0, 0, 0
	for i := range 300 {
		hits += i%7 + 1
		sampled += 3 * []int{2, 4, 1}[i%3]
		query += 1 + i*i%977
		size += 2 * (i + 3*i)
	}
	for expr, want := range map[string]int{
		"sum(%shits%s)": hits, "%ssampled%s": sampled, "sum(histogram_count(%squery%s))": 300,
		"sum(histogram_sum(%squery%s))": query,
		"histogram_count(%ssize%s)":     2 * 3 * 300, "histogram_sum(%ssize%s)": size,
		"histogram_sum(%sdist%s)": -300 * 299 / 2,
		"sum(%sdepth%s)":          408, "sum(%sdb%s)": 3,
	} {
		expr = fmt.Sprintf(expr, prefix, fmt.Sprintf(" @ %d", end.Unix()))
		if err := p.expect(expr, float64(want), 0); err != nil {
			t.Error(err)
		}
	}
	// There are 120 members. The estimate may be off by three times the standard error of HyperLogLog
	// with 2^14 registers.
	if users, err := p.value(fmt.Sprintf("%susers @ %d", prefix, end.Unix())); err != nil || math.Abs(users-120) > 3 {
		t.Errorf("there are %v distinct users, want 120; %v", users, err)
	}
}
