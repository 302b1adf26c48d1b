package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/handover"
	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// inheritance holds the sockets that were open before this image of the process.
type inheritance struct {
	*handover.Sockets
	booked   map[uint64]uint32 // drops that are already in the books, by the kernel's number of the socket
	shared   map[string]bool   // sockets that systemd holds, by network and address
	answered bool              // the previous image answered at an HTTP address
}

// openInherited finds the sockets that were passed to this process.
func (s *server) openInherited() error {
	passed, err := handover.Inherit()
	if err != nil {
		return conf.Mistake(fmt.Errorf("%w; fix the socket unit", err))
	}
	s.inherited = &inheritance{Sockets: passed, shared: map[string]bool{}}
	for _, l := range passed.Left() {
		if l.Shared {
			s.inherited.shared[l.Network+" "+l.Address] = true
		}
	}
	if len(passed.Left()) > 0 {
		s.inherited.booked = s.readBooked()
	}
	return nil
}

// dogstatsd returns the inherited sockets of an address, for the collector.
func (in *inheritance) dogstatsd(network, address string) (all []sockets.Inherited) {
	for _, l := range in.Take(network, address) {
		all = append(all, sockets.Inherited{File: l.File, Shared: l.Shared, Drops: in.booked[l.Cookie]})
	}
	return all
}

// tcp returns the inherited listener for an HTTP address, or nil if there is none.
func (in *inheritance) tcp(address string) (net.Listener, error) {
	listener, err := in.listener("tcp", address)
	in.answered = in.answered || listener != nil
	return listener, err
}

// listener returns the inherited listener for an address, or nil if there is none.
func (in *inheritance) listener(network, address string) (net.Listener, error) {
	taken, ok := in.TakeOne(network, address)
	if !ok {
		return nil, nil
	}
	listener, err := net.FileListener(taken.File)
	_ = taken.File.Close() // the listener has a duplicate
	return listener, err
}

// checkLeft handles the inherited sockets whose addresses are not in the configuration. If systemd
// holds such a socket, nobody would read it, so either the socket unit or our configuration is
// wrong, which is an error. A socket that the previous image opened is closed, since it is no
// longer configured.
func (s *server) checkLeft() error {
	var errs []error
	for _, l := range s.inherited.Left() {
		if !l.Shared {
			s.logger.Warn("a socket is closed: the configuration no longer names it", "network", l.Network, "address", l.Address)
			continue
		}
		key := "dogstatsd." + l.Network
		if l.Network == "tcp" {
			key = "http.listen"
		}
		errs = append(errs, conf.Mistake(fmt.Errorf(
			"systemd passes %s %s (%s), which the configuration does not name, so nothing would read it: set %s to "+
				"this address, or remove the address from the socket unit",
			l.Network, l.Address, l.Name, key)))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return s.inherited.Close()
}

// bookedFile holds, for each socket that outlives the process, the number of kernel drops that are in
// the books. Without the file, the next process would count these drops again.
const (
	bookedFile     = "sockets.json"
	bookedInterval = 2 * time.Second
)

// savedBooked is the content of the file.
type savedBooked struct {
	Boot  string            `json:"boot"`  // the boot of the machine, since the kernel numbers sockets anew after each boot
	Drops map[uint64]uint32 `json:"drops"` // drops in the books, by the kernel's number of the socket
}

// boot returns the kernel's ID of the present boot, or an empty text if it is unknown.
func boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

func (s *server) readBooked() map[uint64]uint32 {
	text, err := os.ReadFile(s.path(bookedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var saved savedBooked
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil {
		s.logger.Warn("the kernel's drops are counted from the time when the inherited sockets were opened",
			"file", s.path(bookedFile), "error", err)
	}
	if saved.Boot != boot() {
		return nil
	}
	return saved.Drops
}

func (s *server) writeBooked() error {
	text, err := json.Marshal(savedBooked{boot(), s.collector.Booked()})
	if err != nil {
		return err
	}
	return s.replace(bookedFile, append(text, '\n'))
}

// keepBooked writes the file at intervals while systemd holds sockets. It writes the file a last time
// after the collector has reported all drops.
func (s *server) keepBooked(ctx context.Context) error {
	var tick <-chan time.Time
	if len(s.inherited.shared) > 0 {
		ticker := time.NewTicker(bookedInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		if err := s.writeBooked(); err != nil {
			s.logger.Warn("after a restart, the kernel's drops may be counted twice", "file", s.path(bookedFile), "error", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}
