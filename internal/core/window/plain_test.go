package window

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/series"
)

// plain resolves contexts like a collector without rules, and makes no garbage.
type plain struct{ key []byte }

func (p *plain) ResolveMetric(m *dogstatsd.Metric) Resolution {
	return p.resolve(kinds[m.Type], m.Name, m.Tags)
}

func (p *plain) ResolveCheck(c *dogstatsd.Check) Resolution {
	return p.resolve(series.Check, c.Name, c.Tags)
}

func (p *plain) UpDown(*dogstatsd.Metric) bool { return false }

func (p *plain) ResolveOverflow(kind series.Kind, name string, _ *series.Policy) Resolution {
	return p.resolve(kind, []byte(name), []byte("overflow"))
}

func (p *plain) resolve(kind series.Kind, name, tags []byte) Resolution {
	p.key = append(p.key[:0], byte(kind))
	for _, label := range [...]struct {
		name  string
		value []byte
	}{{"__name__", name}, {"host", []byte("ip-10-0-12-234")}, {"tags", tags}} {
		p.key = binary.AppendUvarint(p.key, uint64(len(label.name)))
		p.key = append(p.key, label.name...)
		p.key = binary.AppendUvarint(p.key, uint64(len(label.value)))
		p.key = append(p.key, label.value...)
	}
	return Resolution{Key: p.key, Shard: series.Shard("default", p.key), Policy: &series.DefaultPolicy, Scale: 1}
}

// appendLine appends the line of a counter or a gauge with 4 tags, of about 100 bytes.
func appendLine(dst []byte, id int) []byte {
	const line = "service.request.total00:1|c|#env:production,region:eu-west-1,service:checkout,customer:0000000\n"
	begin := len(dst)
	dst = append(dst, line...)
	decimal(dst[begin+21:begin+23], id%64)
	dst[begin+26] = "cg"[id%2]
	decimal(dst[len(dst)-8:len(dst)-1], id)
	return dst
}

// decimal overwrites digits with a number.
func decimal(digits []byte, n int) {
	for at := len(digits) - 1; at >= 0; at, n = at-1, n/10 {
		digits[at] = '0' + byte(n%10)
	}
}

// count counts each of the contexts once, in datagrams of 14 lines.
func count(table *Table, contexts int, now int64) {
	var p dogstatsd.Parser
	var packet []byte
	for id := 0; id < contexts; {
		packet = packet[:0]
		for range 14 {
			packet = appendLine(packet, id)
			id++
		}
		p.Reset(packet)
		table.packet(&p, now)
	}
}
