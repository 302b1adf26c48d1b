package collector

import (
	"errors"
	"os"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/settings"
)

// Left is a socket that a successor continues to read. The caller owns its file.
type Left struct {
	Network, Address string // as in the configuration
	File             *os.File
}

// Leave prepares for a successor. When Run's context is then done, the collector hands over the
// samples that it has read, leaves the rest in the kernel, and keeps the sockets open. After an
// error the opened files are returned as well.
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

// Booked returns how many drops of each UDP socket are in the ledger, by the kernel's number of
// the socket. A successor counts from there: see sockets.Inherited.Drops.
func (c *Collector) Booked() map[uint64]uint32 {
	all := map[uint64]uint32{}
	for _, l := range c.listeners() {
		if cookie, drops, ok := l.socket.Booked(); ok {
			all[cookie] = drops
		}
	}
	return all
}

// inherited returns the sockets for an address that are already open.
func (c *Collector) inherited(l settings.Listener) []sockets.Inherited {
	if c.Inherited == nil {
		return nil
	}
	return c.Inherited(l.Network, l.Address)
}
