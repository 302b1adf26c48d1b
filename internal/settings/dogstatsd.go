package settings

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// DogStatsD is the "dogstatsd" section of the configuration file.
type DogStatsD struct {
	UDP       string     `yaml:"udp" help:"HOST:PORT of the UDP socket; empty turns it off"`
	Unixgram  string     `yaml:"unixgram" help:"path of the Unix datagram socket, which may begin with {data_dir}; empty turns it off"`
	Unix      string     `yaml:"unix" help:"path of the Unix stream socket, whose frames begin with their length, 4 bytes little-endian; empty turns it off"`
	Tenant    string     `yaml:"tenant" help:"tenant of everything these sockets receive"`
	Listeners []Listener `yaml:"listeners" help:"more sockets, each with its tenant"`

	Readers       int        `yaml:"readers" help:"UDP sockets per address, 1 to 256, each with a reader; more than 1 helps if many senders keep one core busy" reload:"restart"`
	ReceiveBuffer conf.Bytes `yaml:"receive_buffer" help:"kernel's receive buffer of each UDP socket, 4KiB to 1GiB"`
	MaxPacket     conf.Bytes `yaml:"max_packet" help:"longest datagram or frame, 512B to 1MiB; longer ones are counted and dropped" reload:"restart"`
	GRO           bool       `yaml:"gro" help:"read several UDP datagrams of a sender at once (UDP_GRO): cheaper if senders or network cards batch them, but the count of drops becomes a lower bound" reload:"restart"`
	SocketMode    string     `yaml:"socket_mode" help:"octal file mode of the Unix sockets; sending needs write permission, which 0722 gives to all" reload:"restart"`

	RelativeGauges bool              `yaml:"relative_gauges" help:"a gauge with a sign (+5|g) is added to the value, as in StatsD; false: it replaces the value, as in DogStatsD"`
	IdleContexts   time.Duration     `yaml:"idle_contexts" help:"time for which the collector remembers a context without samples, 10s to 1d"`
	Labels         map[string]string `yaml:"labels" help:"labels (name: value) for every series whose sender did not set them"`
	HostLabel      bool              `yaml:"host_label" help:"add the label host with this machine's name, if the sender did not set it"`
}

// Listener is an additional socket.
type Listener struct {
	Network string `yaml:"network" help:"udp, unixgram or unix"`
	Address string `yaml:"address" help:"HOST:PORT for udp, else a path, which may begin with {data_dir}"`
	Tenant  string `yaml:"tenant" help:"tenant of everything the socket receives"`
}

// MaxSockets bounds the number of DogStatsD sockets. Each socket may have a window in memory on its way
// to the aggregator.
const MaxSockets = 1024

const defaultUDP = "127.0.0.1:8125"

// DefaultDogStatsD listens on loopback addresses. WithPaths sets the paths of the Unix sockets, which
// are below the data directory.
func DefaultDogStatsD() DogStatsD {
	return DogStatsD{
		UDP:           defaultUDP,
		Tenant:        tenant.Default,
		Readers:       1,
		ReceiveBuffer: sockets.DefaultReceiveBuffer,
		MaxPacket:     sockets.DefaultMaxPacket,
		SocketMode:    "0722",
		// The aggregator keeps counters just as long. So a series that comes back later is new for the
		// aggregator, too.
		IdleContexts: 5 * time.Minute,
		HostLabel:    true,
	}
}

// Validate returns the problems of c, with keys relative to the section.
func (c DogStatsD) Validate() []conf.Problem {
	var problems []conf.Problem
	add := func(key, text string, args ...any) {
		problems = append(problems, conf.Problem{Key: key, Text: fmt.Sprintf(text, args...)})
	}
	if err := tenant.Check(c.Tenant); err != nil {
		add("tenant", "%v", err)
	}
	if why := conf.AddressProblem(c.UDP, defaultUDP); c.UDP != "" && why != "" {
		add("udp", "%s; an empty value turns it off", why)
	}
	for i, l := range c.Listeners {
		key := fmt.Sprintf("listeners[%d]", i)
		if l.Network != "udp" && l.Network != "unixgram" && l.Network != "unix" {
			add(key+".network", "must be udp, unixgram or unix")
		}
		if l.Address == "" {
			add(key+".address", "is missing; give HOST:PORT for udp, or a path for unixgram and unix")
		} else if why := conf.AddressProblem(l.Address, defaultUDP); l.Network == "udp" && why != "" {
			add(key+".address", "%s", why)
		}
		if err := tenant.Check(l.Tenant); err != nil {
			add(key+".tenant", "%v", err)
		}
	}
	if c.Readers < 1 || c.Readers > 256 {
		add("readers", "must be 1 to 256")
	} else if n := len(c.Sockets()) * c.Readers; n > MaxSockets {
		add("listeners", "need up to %d sockets (readers = %d), and %d are allowed; remove some", n, c.Readers, MaxSockets)
	}
	if c.ReceiveBuffer < 4096 || c.ReceiveBuffer > 1<<30 {
		add("receive_buffer", "must be 4KiB to 1GiB")
	}
	if c.MaxPacket < 512 || c.MaxPacket > 1<<20 {
		add("max_packet", "must be 512 bytes to 1MiB")
	}
	if _, err := c.Mode(); err != nil {
		add("socket_mode", "must be an octal file mode such as 0722")
	}
	if c.IdleContexts < 10*time.Second || c.IdleContexts > 24*time.Hour {
		add("idle_contexts", "must be 10s to 1d")
	}
	return problems
}

// Mode returns SocketMode as a file mode.
func (c DogStatsD) Mode() (fs.FileMode, error) {
	mode, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err == nil && mode > 0o777 {
		err = fs.ErrInvalid
	}
	return fs.FileMode(mode), err
}

// Sockets returns all sockets to listen on, in the order of the configuration.
func (c DogStatsD) Sockets() []Listener {
	var all []Listener
	for _, l := range append([]Listener{
		{"udp", c.UDP, c.Tenant}, {"unixgram", c.Unixgram, c.Tenant}, {"unix", c.Unix, c.Tenant},
	}, c.Listeners...) {
		if l.Address != "" {
			all = append(all, l)
		}
	}
	return all
}

// Tenants returns the tenants of all sockets, each once.
func (c DogStatsD) Tenants() []string {
	var all []string
	for _, l := range c.Sockets() {
		all = append(all, l.Tenant)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
