package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// Reader reads a capture.
type Reader struct {
	r         io.Reader
	at        int64 // bytes read
	begun     bool
	frame     [frameSize]byte
	buf       []byte
	listeners []listener
	missed    uint64 // missed datagrams that no Datagram has reported yet
}

// NewReader returns a Reader of the capture in r. It reads in small pieces, so r should be
// buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next fills d with the next datagram, whose Data is valid until the next call. It returns io.EOF at the
// end, ErrCut where the capture breaks off, and another error where it is damaged. After an error, only
// d.Missed is valid: it counts the datagrams that are missing after the last one.
func (r *Reader) Next(d *Datagram) error {
	*d = Datagram{}
	err := r.begin()
	for done := false; err == nil && !done; {
		var body []byte
		at := r.at
		if body, err = r.record(); err != nil {
			break
		}
		if done, err = r.take(body, d); err != nil {
			err = fmt.Errorf("read the capture: record at byte %d: %w", at, err)
		}
	}
	d.Missed, r.missed = r.missed, 0
	return err
}

// begin reads the header.
func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	var header [headerSize]byte
	n, err := io.ReadFull(r.r, header[:])
	r.at = int64(n)
	if kept := min(n, len(magic)); string(header[:kept]) != magic[:kept] || n == 0 {
		return errors.New("read the capture: it has no capture header; was it written by freshet capture?")
	}
	if err != nil {
		return ErrCut
	}
	if v := header[len(magic)]; v != version {
		return fmt.Errorf("read the capture: it has version %d and this program reads %d; use a newer one", v, version)
	}
	r.begun = true
	return nil
}

// record reads the next record.
func (r *Reader) record() ([]byte, error) {
	start := r.at
	n, err := io.ReadFull(r.r, r.frame[:])
	r.at += int64(n)
	if err != nil {
		return nil, ended(err)
	}
	size := binary.LittleEndian.Uint32(r.frame[:])
	if size == 0 || size > maxRecord {
		return nil,
			fmt.Errorf("read the capture: record at byte %d: its length is %d, not between 1 and %d", start, size, maxRecord)
	}
	if uint32(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	body := r.buf[:size]
	n, err = io.ReadFull(r.r, body)
	r.at += int64(n)
	if errors.Is(err, io.EOF) {
		return nil, ErrCut
	}
	if err != nil {
		return nil, ended(err)
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(r.frame[4:]) {
		return nil, fmt.Errorf("read the capture: record at byte %d: checksum mismatch", start)
	}
	return body, nil
}

// ended returns the error for a capture whose reading stopped at `err`.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("read the capture: %w", err)
}

// take interprets one record and reports whether it was a datagram.
func (r *Reader) take(body []byte, d *Datagram) (done bool, err error) {
	c := cursor{left: body}
	switch c.byte() {
	case typeListener:
		if n := c.uint32(); uint64(n) != uint64(len(r.listeners)) {
			return false, fmt.Errorf("listener %d is named out of order, after %d others", n, len(r.listeners))
		}
		r.listeners = append(r.listeners, listener{c.text(), c.text()})
	case typeMissed:
		n := c.uint64()
		r.missed = max(r.missed, r.missed+n) // keeps the old count if the sum overflows
	case typeDatagram:
		d.Time = int64(c.uint64())
		n := c.uint32()
		if uint64(n) >= uint64(len(r.listeners)) {
			return false, fmt.Errorf("listener %d has no name", n)
		}
		d.Network, d.Address = r.listeners[n].network, r.listeners[n].address
		if d.Sender, err = c.sender(); err != nil {
			return false, err
		}
		d.Data = c.left
		done = true
	}
	if c.short {
		return false, errShort
	}
	return done, nil
}

func (c *cursor) sender() (s sender.Sender, err error) {
	switch kind := c.byte(); kind {
	case senderUnknown:
	case senderIPv4:
		if ip, port := c.bytes(4), c.uint16(); !c.short {
			s.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip)), port)
		}
	case senderIPv6:
		if ip, port := c.bytes(16), c.uint16(); !c.short {
			s.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip)), port)
		}
	case senderCredentials:
		s.PID, s.UID = int32(c.uint32()), int32(c.uint32())
	default:
		return s, fmt.Errorf("sender of kind %d: known kinds are 0 to %d", kind, senderCredentials)
	}
	return s, nil
}
