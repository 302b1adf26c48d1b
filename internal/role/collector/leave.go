package collector

import (
	"errors"
	"os"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/settings"
)

// Left is a socket that a successor goes on reading. Its file is the caller's.
type Left struct {
	Network, Address string // as the configuration spells it
	File             *os.File
}

// Leave prepares for a successor: when Run's context is done it leaves what the
// kernel holds by then, hands over what it has read, and the sockets stay open.
// After an error the files that were opened are returned as well.
func (c *Collector) Leave() (all []Left, err error) {
	var errs []error
	for _, l := range c.listeners() {
		file, err := l.socket.Leave()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, Left{l.address.network, l.address.address, file})
	}
	return all, errors.Join(errs...)
}

// Booked returns how many drops of each UDP socket, by the kernel's number of the
// socket, were told: a successor counts from there (sockets.Inherited.Drops).
func (c *Collector) Booked() map[uint64]uint32 {
	all := map[uint64]uint32{}
	for _, l := range c.listeners() {
		if cookie, drops, ok := l.socket.Booked(); ok {
			all[cookie] = drops
		}
	}
	return all
}

// inherited are the sockets for an address that are open already.
func (c *Collector) inherited(l settings.Listener) []sockets.Inherited {
	if c.Inherited == nil {
		return nil
	}
	return c.Inherited(l.Network, l.Address)
}
