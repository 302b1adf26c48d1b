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

// Leave prepares for a successor. Once Run's context is done after that, the collector hands over the
// samples that it has read, leaves the rest in the kernel, and keeps the sockets open. If Leave fails,
// it still returns the files that it opened.
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

// Booked returns for each UDP socket how many of its drops are in the ledger. The key is the kernel's
// number of the socket. A successor counts on from there: see sockets.Inherited.Drops.
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
