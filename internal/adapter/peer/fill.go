package peer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
)

// A node that joins may need the data of another node: see docs/format/fill.md. These are the calls for that. They
// use the connection for entries, so that votes and heartbeats do not wait behind files.

// CopiedFile is a file of a copy that a node has set aside for another one.
type CopiedFile struct {
	Name string // path below the data directory, with slashes
	Size int64
}

// Fill is the progress of a node that is being filled.
type Fill struct {
	From           string // the node that gives its data
	Bytes, OfBytes uint64
	Seconds        float64 // since the fill began
	ETA            float64 // seconds until it ends; negative if that is not known
	Failures       uint64  // tries that failed since the process started
	Error          string  // of the last one; empty if there was none
}

const (
	piece = 256 << 10 // bytes of a file in one message

	filesAtOnce = 1000    // in one message
	maxFiles    = 1 << 20 // of a copy
	maxFile     = 1 << 50 // bytes; so sums do not overflow

	// A copy needs a checkpoint, for which stores are synced. If a checkpoint failed before, the next one waits for
	// up to 5 minutes.
	copyTimeout = 10 * time.Minute

	// pieceTimeout is how long a node may take to send the next piece of a file.
	pieceTimeout = 30 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Copy handles the call of a node that wants to be filled.
func (s *Server) Copy(in *wire.CopyRequest, out grpc.ServerStreamingServer[wire.CopyReply]) error {
	if err := s.greet(out.Context(), in.GetHello(), knowsNothing); err != nil {
		return err
	}
	files, err := s.Handler.Copy(out.Context(), in.GetHello().GetNode(), in.GetWhole())
	if err != nil {
		return status.Error(codes.Aborted, valid(err.Error()))
	}
	for len(files) > 0 {
		some := files[:min(len(files), filesAtOnce)]
		files = files[len(some):]
		reply := &wire.CopyReply{}
		for _, f := range some {
			reply.Files = append(reply.Files, &wire.CopiedFile{Name: f.Name, Size: uint64(f.Size)})
		}
		if err := out.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

// Fetch sends a file of the caller's copy.
func (s *Server) Fetch(in *wire.FetchRequest, out grpc.ServerStreamingServer[wire.FetchReply]) error {
	if err := s.greet(out.Context(), in.GetHello(), knowsNothing); err != nil {
		return err
	}
	file, err := s.Handler.Fetch(in.GetHello().GetNode(), in.GetName())
	if err != nil {
		return status.Error(codes.Aborted, valid(err.Error()))
	}
	defer file.Close()
	sum, b := uint32(0), make([]byte, piece)
	for offset := uint64(0); ; {
		n, err := io.ReadFull(file, b)
		if n > 0 {
			sum = crc32.Update(sum, castagnoli, b[:n])
			next := &wire.FetchReply{Offset: offset, Data: b[:n], Crc: crc32.Checksum(b[:n], castagnoli)}
			if err := out.Send(next); err != nil {
				return err
			}
			offset += uint64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out.Send(&wire.FetchReply{Offset: offset, Crc: sum, Last: true})
		case err != nil:
			return status.Error(codes.Aborted, valid(fmt.Sprintf("read %s: %v", in.GetName(), err)))
		}
	}
}

// Pin handles the call of a node that is being filled.
func (s *Server) Pin(ctx context.Context, in *wire.PinRequest) (*wire.PinReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsNothing); err != nil {
		return nil, err
	}
	return &wire.PinReply{Error: encodeError(s.Handler.Pin(in.GetHello().GetNode(), in.GetFrom()))}, nil
}

// Copy asks a node to set aside a copy of its data for this node: only the blocks, or the whole of it, in place of
// what it set aside before.
func (p *Peers) Copy(ctx context.Context, to string, whole bool) (all []CopiedFile, err error) {
	n := p.nodes[to]
	if n == nil {
		return nil, errNoNode(to)
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	in, err := wire.NewPeerClient(n.entries.cc).Copy(ctx, &wire.CopyRequest{Hello: p.hello(), Whole: whole})
	for err == nil {
		var some *wire.CopyReply
		if some, err = in.Recv(); err != nil {
			break
		}
		for _, f := range some.GetFiles() {
			all = append(all, CopiedFile{f.GetName(), int64(min(f.GetSize(), maxFile))})
		}
		if len(all) > maxFiles {
			return nil, fmt.Errorf("node %s has more than %d files", to, maxFiles)
		}
	}
	if errors.Is(err, io.EOF) {
		return all, nil
	}
	return nil, n.failed(ctx, "copy its data", err)
}

// Fetch gets a file of this node's copy at another node, and hands its pieces to `take`, one after the other. Each
// piece and the whole file have the right checksum.
func (p *Peers) Fetch(ctx context.Context, from string, file CopiedFile, take func(b []byte) error) error {
	n := p.nodes[from]
	if n == nil {
		return errNoNode(from)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(pieceTimeout, func() {
		cancel(fmt.Errorf("%w: it sent nothing for %v", ErrUnreachable, pieceTimeout))
	})
	defer slow.Stop()
	in, err := wire.NewPeerClient(n.entries.cc).Fetch(ctx, &wire.FetchRequest{Hello: p.hello(), Name: file.Name})
	got := fetched{file: file}
	for err == nil && !got.whole {
		slow.Reset(pieceTimeout)
		var next *wire.FetchReply
		if next, err = in.Recv(); err != nil {
			break
		}
		slow.Stop() // the time of `take` does not count
		if err := got.add(next); err != nil {
			return fmt.Errorf("file %s of node %s: %w", file.Name, from, err)
		}
		if err := take(next.GetData()); err != nil {
			return err
		}
	}
	if err == nil {
		return nil
	}
	return n.failed(ctx, "send "+file.Name, err)
}

// fetched checks the pieces of a file.
type fetched struct {
	file  CopiedFile
	bytes int64
	sum   uint32
	whole bool
}

var errTransfer = errors.New("its bytes changed on the way")

func (f *fetched) add(next *wire.FetchReply) error {
	data := next.GetData()
	switch {
	case next.GetOffset() != uint64(f.bytes), len(data) > piece, next.GetLast() == (len(data) > 0):
		return fmt.Errorf("%w: a piece of %d bytes at byte %d follows byte %d", errTransfer, len(data), next.GetOffset(),
			f.bytes)
	case f.bytes+int64(len(data)) > f.file.Size, next.GetLast() && f.bytes != f.file.Size:
		return fmt.Errorf("%w: it should have %d bytes", errTransfer, f.file.Size)
	case next.GetLast():
		if f.whole = next.GetCrc() == f.sum; !f.whole {
			return fmt.Errorf("%w: the checksum of the file is wrong", errTransfer)
		}
		return nil
	case next.GetCrc() != crc32.Checksum(data, castagnoli):
		return fmt.Errorf("%w: the checksum at byte %d is wrong", errTransfer, f.bytes)
	}
	f.sum = crc32.Update(f.sum, castagnoli, data)
	f.bytes += int64(len(data))
	return nil
}

// Pin asks a node to keep the entries of its log after `from` for this node, for a minute.
func (p *Peers) Pin(ctx context.Context, to string, from uint64) error {
	_, err := call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.PinReply, error) {
			return c.Pin(ctx, &wire.PinRequest{Hello: h, From: from})
		},
		func(r *wire.PinReply) (none struct{}, err error) { return none, decodeError(r.GetError()) })
	return err
}

// failed is called with the error of a stream from a node.
func (n *node) failed(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("ask node %s at %s to %s: %w", n.name, n.address, what, cause)
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable {
		return fmt.Errorf("ask node %s at %s to %s: %w: %s", n.name, n.address, what, ErrUnreachable, s.Message())
	}
	return fmt.Errorf("ask node %s at %s to %s: %s", n.name, n.address, what, s.Message())
}

func errNoNode(name string) error {
	return fmt.Errorf("ask node %.80q: cluster.nodes does not have it", name)
}

func encodeFill(f *Fill) *wire.Fill {
	if f == nil {
		return nil
	}
	return &wire.Fill{From: f.From, Bytes: f.Bytes, OfBytes: f.OfBytes, Seconds: f.Seconds, EtaSeconds: f.ETA,
		Failures: f.Failures, Error: valid(f.Error)}
}

// decodeFill replaces times that are invalid, such as NaN: JSON cannot encode them.
func decodeFill(f *wire.Fill) *Fill {
	if f == nil {
		return nil
	}
	got := &Fill{From: valid(f.GetFrom()), Bytes: f.GetBytes(), OfBytes: f.GetOfBytes(), Seconds: f.GetSeconds(),
		ETA: f.GetEtaSeconds(), Failures: f.GetFailures(), Error: valid(f.GetError())}
	if !(got.Seconds >= 0 && got.Seconds <= maxAge) {
		got.Seconds = 0
	}
	if !(got.ETA >= 0 && got.ETA <= maxAge) {
		got.ETA = -1
	}
	return got
}
