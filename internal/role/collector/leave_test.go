package collector

import (
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
)

// The collector hands the samples that it has read to the aggregator, and leaves unread
// datagrams to its successor.
func TestASuccessorReadsWhereACollectorLeft(t *testing.T) {
	first := newFixture(t, nil)
	config := first.Config
	conns := map[string]func(string){}
	for _, network := range networks {
		conn := dial(t, network, first.address(network))
		conns[network] = func(p string) { send(t, conn, p) }
	}
	first.start(t)
	for network, write := range conns {
		write("before." + network + ":1|c")
		await(t, "the datagram", func() bool { return packets(first, network) == 1 })
	}
	left, err := first.Leave()
	if err != nil || len(left) != len(networks) {
		t.Fatalf("left %+v: %v", left, err)
	}
	first.stop()
	for _, network := range []string{"udp", "unixgram"} { // the sockets are open, but no collector reads them
		conns[network]("after." + network + ":1|c")
	}
	next := newFixture(t, func(o *Options) {
		o.Config = config
		o.Inherited = func(network, address string) (all []sockets.Inherited) {
			for _, l := range left {
				if l.Network == network && l.Address == address {
					all = append(all, sockets.Inherited{File: l.File})
				}
			}
			return all
		}
	}).start(t)
	for _, network := range []string{"udp", "unixgram"} {
		await(t, "the datagram that waited", func() bool { return packets(next, network) == 1 })
	}
	send(t, dial(t, "unix", next.address("unix")), "after.unix:1|c")
	await(t, "the frame", func() bool { return packets(next, "unix") == 1 })
	next.stop()
	for _, network := range networks {
		before, after := `counter {__name__="before_`+network+`"}`, `counter {__name__="after_`+network+`"}`
		if one, two := first.aggregator.totals(), next.aggregator.totals(); one[before] != 1 || two[after] != 1 ||
			len(one) != 3 || len(two) != 3 {
			t.Errorf("%s: first got %v, successor got %v", network, one, two)
		}
	}
	if booked := first.Booked(); len(booked) != 1 {
		t.Errorf("Booked returned %v, want one entry, for the UDP socket", booked)
	}
}
