package capture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// Writer writes a capture. It passes on each record in one Write. So a killed process leaves whole
// records, unless the underlying writer splits them.
type Writer struct {
	w         io.Writer
	buf       []byte // the record being written; reused
	begun     bool
	listeners map[listener]uint32
}

// listener is a socket. A capture names it once and then refers to its number.
type listener struct{ network, address string }

// NewWriter returns a Writer that has written nothing yet.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, listeners: map[listener]uint32{}}
}

// Begin writes the header once. Write calls Begin. Callers need it only to make a capture without
// datagrams valid.
func (w *Writer) Begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	_, err := w.w.Write(append([]byte(magic), version))
	return err
}

// Write adds the count of datagrams missed before d, and then d.
func (w *Writer) Write(d *Datagram) error {
	if err := w.Missed(d.Missed); err != nil {
		return err
	}
	number, err := w.number(listener{d.Network, d.Address})
	if err != nil {
		return err
	}
	b := w.record(typeDatagram)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Time))
	b = binary.LittleEndian.AppendUint32(b, number)
	b = appendSender(b, d.Sender)
	return w.end(append(b, d.Data...))
}

// Missed adds a count of datagrams that arrived but are not in the capture. For 0, it writes no count.
func (w *Writer) Missed(n uint64) error {
	if err := w.Begin(); err != nil || n == 0 {
		return err
	}
	return w.end(binary.LittleEndian.AppendUint64(w.record(typeMissed), n))
}

// number returns the number of l in the capture. If l is new, it first writes the record that names
// l.
func (w *Writer) number(l listener) (uint32, error) {
	if n, ok := w.listeners[l]; ok {
		return n, nil
	}
	n := uint32(len(w.listeners))
	w.listeners[l] = n
	b := binary.LittleEndian.AppendUint32(w.record(typeListener), n)
	b = appendText(b, l.network)
	return n, w.end(appendText(b, l.address))
}

func appendText(b []byte, text string) []byte {
	text = text[:min(len(text), 1<<16-1)]
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
}

func appendSender(b []byte, s sender.Sender) []byte {
	switch {
	case s.PID != 0 || s.UID != 0:
		b = binary.LittleEndian.AppendUint32(append(b, senderCredentials), uint32(s.PID))
		return binary.LittleEndian.AppendUint32(b, uint32(s.UID))
	case s.Addr.Addr().Is4():
		ip := s.Addr.Addr().As4()
		return binary.LittleEndian.AppendUint16(append(append(b, senderIPv4), ip[:]...), s.Addr.Port())
	case s.Addr.Addr().Is6():
		ip := s.Addr.Addr().As16()
		return binary.LittleEndian.AppendUint16(append(append(b, senderIPv6), ip[:]...), s.Addr.Port())
	}
	return append(b, senderUnknown)
}

// record begins a record, with room for its length and checksum.
func (w *Writer) record(kind byte) []byte {
	return append(w.buf[:0], 0, 0, 0, 0, 0, 0, 0, 0, kind)
}

// end completes the record and writes it.
func (w *Writer) end(b []byte) error {
	w.buf = b
	body := b[frameSize:]
	if len(body) > maxRecord {
		return fmt.Errorf("a datagram of %d bytes is too long: a record of a capture has at most %d "+
			"bytes", len(body), maxRecord)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(body, castagnoli))
	_, err := w.w.Write(b)
	return err
}
