// Package checkpoint keeps the saved state of a member of a group. A checkpoint is a file of sections: one for the
// group, one for each shard, one for each tenant and one for decisions. Each section has the index of the last
// entry that it contains. core/member defines the content of the sections.
//
// A checkpoint counts as a whole or not at all, because its sections belong together: the group's section says
// which entries the other sections lack. The previous checkpoint is kept in case the newest is damaged. The
// checkpoints of a journal (core/journal) follow other rules: there each shard stands alone.
//
// Layout and the laws of reading: docs/format/groupcheckpoint.md.
package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Kind says which part of the state a section holds.
type Kind uint8

// The kinds.
const (
	Group Kind = 1 + iota
	Shard
	Tenant

	end // not a section: the last frame

	Decisions // the last section: see member.AppendDecisions
)

// Section is a part of the state.
type Section struct {
	Kind    Kind
	Shard   uint16 // for the kind Shard
	Tenant  string // for the kind Tenant
	Index   uint64 // index of the last entry in the state
	Payload []byte // after reading, valid until the next section
}

const (
	// maxPayload limits the payload of a frame, in bytes. A reader treats a greater length as damage, so that it
	// never allocates more. A longer section is split into several frames.
	maxPayload = 256 << 20

	tempName = "checkpoint.tmp"
)

var format = segment.Format{Noun: "checkpoint", Magic: "FRSHGRPC", Suffix: ".checkpoint", MaxPayload: maxPayload,
	Unordered: true, Accept: accept}

var order = binary.LittleEndian

// A tag has the kind, the shard, and a bit that says whether the section goes on in the next frame.
const (
	shardShift = 8
	moreFlag   = 1 << 24
)

func (s *Section) tag() uint32 { return uint32(s.Kind) | uint32(s.Shard)<<shardShift }

func kindOf(tag uint32) Kind    { return Kind(tag) }
func shardOf(tag uint32) uint16 { return uint16(tag >> shardShift) }

func accept(tag uint32) bool {
	kind, shard := kindOf(tag), shardOf(tag)
	return tag>>25 == 0 && kind >= Group && kind <= Decisions && (kind == Shard && shard < series.Shards || shard == 0)
}

// Writer writes a checkpoint. One goroutine at a time uses it.
type Writer struct {
	fs    segment.FS
	mark  uint32
	piece int // limit on the bytes of a section in one frame
	base  uint64
	file  segment.Writer
	w     *bufio.Writer
	count uint32
	name  []byte // scratch
}

// Begin begins a checkpoint. Its first section must be the group's, with the index `base`. `mark`
// is as in journal.Options. A second checkpoint in the directory may begin only after Commit or
// Abort.
func Begin(fs segment.FS, mark uint32, base uint64) (*Writer, error) {
	f, err := fs.Create(tempName)
	if err != nil {
		return nil, fmt.Errorf("begin a checkpoint: create %s: %w", tempName, err)
	}
	w := &Writer{fs: fs, mark: mark, piece: maxPayload, base: base, file: f, w: bufio.NewWriterSize(f, 256<<10)}
	// The buffered writer keeps an error; Add or Commit returns it.
	_, _ = w.w.Write(segment.AppendHeader(nil, format.Magic, mark, segment.Position(base)))
	return w, nil
}

// Base returns the index of the group's section, the lowest index of all sections.
func (w *Writer) Base() uint64 { return w.base }

// Add writes a section. The caller can reuse the payload afterwards.
func (w *Writer) Add(s *Section) error {
	if (w.count == 0) != (s.Kind == Group) || s.Index < w.base || w.count == 0 && s.Index != w.base || !accept(s.tag()) {
		panic(fmt.Sprintf("BUG: section %d of a checkpoint at %d has kind %d, shard %d, index %d",
			w.count, w.base, s.Kind, s.Shard, s.Index))
	}
	w.name = w.name[:0]
	if s.Kind == Tenant {
		w.name = append(binary.AppendUvarint(w.name, uint64(len(s.Tenant))), s.Tenant...)
	}
	name, rest := w.name, s.Payload
	for more := uint32(moreFlag); more != 0; name = nil {
		n := min(w.piece-len(name), len(rest))
		if n == len(rest) {
			more = 0
		}
		if err := w.put(s.tag()|more, s.Index, name, rest[:n]); err != nil {
			return fmt.Errorf("write section %d of a checkpoint: %w", w.count, err)
		}
		rest = rest[n:]
	}
	w.count++
	return nil
}

func (w *Writer) put(tag uint32, index uint64, payload ...[]byte) error {
	return format.WriteFrame(w.w, w.mark, &segment.Frame{Pos: segment.Position(index), Tag: tag}, payload...)
}

// Commit puts the checkpoint into place, and removes all other checkpoints but those at the indexes
// `keep`. An earlier checkpoint counts until Commit returns nil. It also stops counting if Commit
// returns an error that says that the new checkpoint is in place.
func (w *Writer) Commit(keep ...uint64) error {
	defer w.Abort()
	if err := w.finish(); err != nil {
		return fmt.Errorf("write the checkpoint at entry %d: %w", w.base, err)
	}
	names, err := w.fs.List()
	for _, f := range Files(names) {
		if base := uint64(f.First); err == nil && !slices.Contains(keep, base) && base != w.base {
			err = w.fs.Remove(f.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("the checkpoint at entry %d is in place, but older ones could not be removed: %w", w.base, err)
	}
	return nil
}

// finish writes the last frame and renames the file. Each step is safe on disk before the next begins.
func (w *Writer) finish() error {
	if err := w.put(uint32(end), w.base, order.AppendUint32(nil, w.count)); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := w.fs.Rename(tempName, format.Name(segment.Position(w.base))); err != nil {
		return fmt.Errorf("rename %s: %w", tempName, err)
	}
	return w.fs.SyncDir()
}

// Abort ends a checkpoint that will not be committed. It does nothing after Commit.
func (w *Writer) Abort() {
	if w.file == nil {
		return
	}
	_ = w.file.Close()
	_ = w.fs.Remove(tempName) // an error does no harm: the file was renamed, or the next checkpoint overwrites it
	w.file = nil
}

// Files returns the checkpoints among the names of a directory, the oldest first. Each file was whole when it got
// its name.
func Files(names []string) []segment.File { return format.Files(names) }

// File is a whole checkpoint.
type File struct {
	Base uint64 // index of the group's section

	fs segment.FS
}

// Copy copies the checkpoint with this base to an empty directory.
func Copy(from, to segment.FS, base uint64) error {
	n, err := segment.Copy(from, to, func(names []string) []segment.File {
		return slices.DeleteFunc(Files(names), func(f segment.File) bool { return uint64(f.First) != base })
	})
	if err == nil && n == 0 {
		err = errors.New("it is gone")
	}
	return err
}

// RemoveBeyond removes the checkpoints with a base above `most`.
func RemoveBeyond(fs segment.FS, most uint64) error {
	names, err := fs.List()
	for _, f := range Files(names) {
		if uint64(f.First) > most && err == nil {
			err = fs.Remove(f.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("remove the checkpoints behind entry %d, which do not count: %w", most, err)
	}
	return nil
}

// Newest returns the newest whole checkpoint whose base is at most `most`, nil if there is none.
// `damage` says why newer checkpoints do not count. The error means that a file cannot be opened, or has
// a newer version.
func Newest(fs segment.FS, most uint64) (newest *File, damage []error, err error) {
	names, err := fs.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list the checkpoints: %w", err)
	}
	files := Files(names)
	for i := len(files) - 1; i >= 0; i-- {
		f := &File{Base: uint64(files[i].First), fs: fs}
		if f.Base > most {
			continue
		}
		switch err := f.Read(func(*Section) error { return nil }); {
		case err == nil:
			return f, damage, nil
		case !errors.Is(err, errDamaged):
			return nil, damage, err
		default:
			damage = append(damage, err)
		}
	}
	return nil, damage, nil
}

var errDamaged = errors.New("is damaged")

// Read calls `fn` for each section, in the order in which they were written: the group's section
// comes first.
func (f *File) Read(fn func(*Section) error) error {
	s, err := format.Open(f.fs, segment.Position(f.Base))
	if err != nil {
		return err
	}
	defer s.Close()
	count, err := f.read(s, fn)
	if errors.Is(err, errDamaged) {
		if s.Err != nil {
			err = fmt.Errorf("%w: %w", err, s.Err)
		}
		return fmt.Errorf("checkpoint %s: section %d, byte %d: %w", format.Name(s.First), count, s.End, err)
	}
	return err
}

func (f *File) read(s *segment.Scanner, fn func(*Section) error) (count uint32, err error) {
	var whole []byte        // the frames of one section that were read so far
	var first segment.Frame // the first of these frames; its tag is 0 if there are none
	for {
		before := s.End
		frame, ok := s.Next(s.Size, math.MaxUint64)
		if !ok || frame.Offset != before {
			return count, errDamaged
		}
		if first.Tag != 0 && (frame.Tag&^moreFlag != first.Tag&^moreFlag || frame.Pos != first.Pos) {
			return count, errDamaged
		}
		if frame.Tag&moreFlag != 0 {
			first, whole = frame, append(whole, frame.Payload...)
			continue
		}
		if first.Tag != 0 {
			frame.Payload, whole = append(whole, frame.Payload...), nil
			first.Tag = 0
		}
		section := Section{
			Kind: kindOf(frame.Tag), Shard: shardOf(frame.Tag), Index: uint64(frame.Pos), Payload: frame.Payload,
		}
		if section.Kind == end {
			if len(frame.Payload) != 4 || order.Uint32(frame.Payload) != count || count == 0 || s.End != s.Size {
				return count, errDamaged
			}
			return count, nil
		}
		if (count == 0) != (section.Kind == Group) || count == 0 && section.Index != f.Base || !section.cutTenant() {
			return count, errDamaged
		}
		if err := fn(&section); err != nil {
			return count, err
		}
		count++
	}
}

// cutTenant takes the name off the front of the payload of a tenant's section.
func (s *Section) cutTenant() bool {
	if s.Kind != Tenant {
		return true
	}
	length, n := binary.Uvarint(s.Payload)
	if n <= 0 || length > uint64(len(s.Payload)-n) {
		return false
	}
	s.Tenant, s.Payload = string(s.Payload[n:n+int(length)]), s.Payload[n+int(length):]
	return true
}
