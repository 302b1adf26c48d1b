package tsdb

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
)

// The file meta.json of a block says which times the block has, and it has no checksum. With a changed digit in it,
// tsdb would answer without samples of the block, skip samples of the log, or delete other blocks as too old. So
// Freshet keeps a copy with a checksum beside it, and restores a damaged file from the copy.

const (
	metaFile = "meta.json"

	metaCopyFile    = "meta.copy"
	metaCopyMagic   = "FRSHMETA"
	metaCopyVersion = 1

	// metaNewFile becomes one of the two. A killed process may leave it behind.
	metaNewFile = "meta.new"
)

var errMeta = errors.New("it does not describe this block")

// blockMeta is what is on disk about a block.
type blockMeta struct {
	text   []byte // of meta.json
	copied []byte // the text in the copy; nil if there is no copy, or it is damaged itself
	damage error  // nil if tsdb can use the text, and it says what the copy says
}

// readMeta returns an error of the disk.
func readMeta(dir string) (m blockMeta, err error) {
	if m.text, m.damage = os.ReadFile(filepath.Join(dir, metaFile)); environment(m.damage) != nil {
		return m, m.damage
	}
	file, err := os.ReadFile(filepath.Join(dir, metaCopyFile))
	if environment(err) != nil {
		return m, err
	}
	m.copied = parseMetaCopy(file)
	if m.damage == nil && !bytes.Equal(m.text, m.copied) {
		m.damage = judgeMeta(filepath.Base(dir), m.text, m.copied)
	}
	return m, nil
}

// judgeMeta returns an error if the text describes no block of this name, or another one than the copy.
func judgeMeta(name string, text, copied []byte) error {
	is, err := parseMeta(text)
	if err != nil {
		return err
	}
	if is.ULID.String() != name || is.Version != 1 || is.MinTime >= is.MaxTime {
		return errMeta
	}
	if copied == nil {
		return nil
	}
	was, err := parseMeta(copied)
	if err != nil {
		return err
	}
	isText, err := json.Marshal(is)
	if err != nil {
		return err
	}
	wasText, err := json.Marshal(was)
	if err == nil && !bytes.Equal(isText, wasText) {
		err = fmt.Errorf("it says %s, and its copy %s", isText, wasText)
	}
	return err
}

// parseMeta leaves out what tsdb changes later.
func parseMeta(text []byte) (m tsdb.BlockMeta, err error) {
	err = json.Unmarshal(text, &m)
	m.Compaction.Failed, m.Compaction.Deletable, m.Stats.NumTombstones = false, false, 0
	return m, err
}

// appendMetaCopy appends the contents of a copy to b: docs/format/databases.md.
func appendMetaCopy(b, text []byte) []byte {
	from := len(b)
	b = append(append(b, metaCopyMagic...), metaCopyVersion)
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// parseMetaCopy returns the text in a copy, nil if the copy is damaged or of a later version.
func parseMetaCopy(file []byte) (text []byte) {
	body := len(file) - 4
	if body < 0 || binary.LittleEndian.Uint32(file[body:]) != crc32.Checksum(file[:body], castagnoli) {
		return nil
	}
	text, ok := bytes.CutPrefix(file[:body], append([]byte(metaCopyMagic), metaCopyVersion))
	if !ok {
		return nil
	}
	return text
}

// keepMetas does what keepMeta does, for all blocks of the store.
func (s *store) keepMetas() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		if err := s.keepMeta(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// keepMeta copies the metadata of a block that has no copy, and restores damaged metadata from their copy. Without a
// copy, it returns a *damageError.
func (s *store) keepMeta(dir string) error {
	s.keeping.Lock() // a compaction and the scrub would write the same file
	defer s.keeping.Unlock()
	m, err := readMeta(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, metaFile)
	switch {
	case m.damage == nil && m.copied != nil:
		return nil
	case m.damage == nil:
		// The copy is not synced: if a power loss takes it, the next opening makes another one.
		file := appendMetaCopy(nil, m.text)
		if err := putFile(dir, metaCopyFile, metaNewFile, file, func(string) error { return nil }); err != nil {
			s.logger.Warn("the metadata of a block have no copy: a later start makes one", "dir", dir, "err", err)
		}
		return nil
	case m.copied == nil:
		return &damageError{path, -1, m.damage}
	}
	if err := putFile(dir, metaFile, metaNewFile, m.copied, s.fsync); err != nil {
		return needsRoom(path, fmt.Errorf("%s is damaged: %w; restore it from its copy: %w", path, m.damage, err))
	}
	s.restored.Inc()
	s.logger.Error("the metadata of a block were damaged, and are restored from their copy: nothing is lost",
		"path", path, "err", m.damage, "way_out", "check the disk: a written block never changes")
	return nil
}
