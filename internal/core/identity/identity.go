// Package identity says which node of which cluster a data directory is. A directory stays the same node
// all its life: the node's name, cluster and member never change. The file cluster.json in the directory
// has them (docs/format/cluster.md).
//
// A cluster is founded once, by one directory. The other nodes join it: each draws the number of its
// member and saves it before it asks to join, so that a number is never used by two directories.
package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
)

// File is the name of the identity's file in the data directory.
const File = "cluster.json"

// Identity says which node of which cluster a directory is.
type Identity struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"` // 32 hexadecimal digits; empty while the node has not joined
	Epoch   uint64 `json:"epoch"`   // grows with each recovery: nodes of an older epoch are refused
	Node    string `json:"node"`
	Member  uint64 `json:"member,string"`
	Founder uint64 `json:"founder,string"` // the first member of the group; 0 while the node has not joined

	// Recovered means that the node has not taken part since it was made the only one of its cluster.
	Recovered bool `json:"recovered,omitempty"`

	summed bool // the file has a checksum; files of older programs have none
}

const (
	version    = 1
	firstEpoch = 1

	// BaseIndex and BaseTerm are the index and the term of the base of a new group's log.
	BaseIndex = 1
	BaseTerm  = 1

	// DataIndex is the index of the base if the founder has data: this data counts as the entry after
	// BaseIndex. The first start of the founder writes the data to the group's first checkpoint. A node that joins
	// is filled, since the log never has this entry.
	DataIndex = BaseIndex + 1
)

var (
	// ErrNone means that a directory belongs to no cluster.
	ErrNone = errors.New("the data directory belongs to no cluster")

	// ErrDamaged means that the file does not say what was written. Its text has the way out.
	ErrDamaged = errors.New(File + " is damaged. If the other nodes of its cluster are well, empty the data directory, " +
		"run freshet cluster replace with the name of this node at another one, and start with --cluster-join; if not, " +
		"restore the file from a backup of the directory")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Joined reports whether the node has joined its cluster.
func (i *Identity) Joined() bool { return i.Cluster != "" }

// Read returns the identity of a directory. The error is ErrNone if the directory has none.
func Read(dir segment.FS) (*Identity, error) {
	f, size, err := dir.Open(File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's identity: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, fmt.Errorf("read the node's identity: %w", err)
	}
	return parse(text)
}

// sumField begins the checksum, which is the last field. It covers all bytes before it.
const sumField = ",\n  \"crc32c\": "

// parse returns the identity that a file has. A file that was changed must not be believed: with a wrong epoch, this
// node would tell the others that the cluster was recovered without them, and they would end.
func parse(text []byte) (*Identity, error) {
	var file struct {
		Identity
		Sum *string `json:"crc32c"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	i := &file.Identity
	if i.summed = file.Sum != nil; i.summed {
		if n := bytes.LastIndex(text, []byte(sumField)); n < 0 || *file.Sum != checksum(text[:n]) {
			return nil, fmt.Errorf("%w: it does not have its checksum %q", ErrDamaged, *file.Sum)
		}
	}
	switch {
	case i.Version > version:
		return nil, fmt.Errorf("%s has version %d, and this program reads up to version %d: start a newer program",
			File, i.Version, version)
	case i.Version != version || cluster.CheckName(i.Node) != nil || i.Member == 0 || i.Epoch == 0:
		return nil, fmt.Errorf("%w: it has version %d, node %q, member %d, epoch %d", ErrDamaged, i.Version, i.Node,
			i.Member, i.Epoch)
	}
	return i, nil
}

func checksum(text []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) }

// Protect gives the file of an older program a checksum.
func (i *Identity) Protect(dir segment.FS) error {
	if i.summed {
		return nil
	}
	return i.write(dir)
}

// Found makes a directory the first node of a new cluster, and begins the log of its group, in `log`, after
// the entry `base`: BaseIndex, or DataIndex if the directory has data. After an error nothing is founded, and
// the call may be repeated.
func Found(dir, log segment.FS, node string, base uint64) (*Identity, error) {
	if i, err := Read(dir); !errors.Is(err, ErrNone) {
		if err == nil {
			err = fmt.Errorf("the data directory is node %s of cluster %s already", i.Node, i.Cluster)
		}
		return nil, err
	}
	i, err := draw(node)
	if err != nil {
		return nil, err
	}
	if err := i.found(dir, log, base); err != nil {
		return nil, err
	}
	return i, nil
}

// Found makes a prepared directory, which is empty, the first node of a new cluster. The call may be repeated until
// the identity has joined.
func (i *Identity) Found(dir, log segment.FS) error { return i.found(dir, log, BaseIndex) }

func (i *Identity) found(dir, log segment.FS, base uint64) error {
	founded := *i
	var err error
	if founded.Cluster, err = drawCluster(); err != nil {
		return err
	}
	founded.Founder = i.Member
	if err := begin(log, i.Member, base); err != nil {
		return err
	}
	if err := founded.write(dir); err != nil {
		return err
	}
	*i = founded
	return nil
}

// Prepare returns the identity with which a directory asks to join a cluster. Prepare saves it, so that
// each attempt to join uses the same member number.
func Prepare(dir segment.FS, node string) (*Identity, error) {
	i, err := draw(node)
	if err != nil {
		return nil, err
	}
	return i, i.write(dir)
}

// Invitation is the leader's answer to a node that may join.
type Invitation struct {
	Cluster string
	Epoch   uint64
	Founder uint64
}

// Join makes a prepared directory a node of the cluster. It begins the node's copy of the log, unless the directory was
// filled: then a log with a checkpoint is there. The call may be repeated until the identity has joined.
func (i *Identity) Join(dir, log segment.FS, to Invitation, filled bool) error {
	if err := beginJoined(log, to.Founder, filled); err != nil {
		return err
	}
	joined := *i
	joined.Cluster, joined.Epoch, joined.Founder = to.Cluster, to.Epoch, to.Founder
	if err := joined.write(dir); err != nil {
		return err
	}
	*i = joined
	return nil
}

// Recover makes the node the only one of its group, whose log is open, and begins the next recovery epoch: the other
// nodes are refused from then on. The error is entrylog.ErrAlone if there is no other node. After any other error,
// the call may be repeated. The epoch changes first: with the old epoch, the node would decide alone, while
// the others still took it for one of them.
func (i *Identity) Recover(dir segment.FS, log *entrylog.Log) error {
	if err := log.Start(log.Last()); err != nil {
		return err
	}
	_, members, err := log.InitialState()
	if err != nil {
		return err
	}
	if all := slices.Concat(members.GetVoters(), members.GetVotersOutgoing(), members.GetLearners(),
		members.GetLearnersNext()); len(all) == 1 && all[0] == i.Member {
		return entrylog.ErrAlone
	}
	next := *i
	next.Epoch++
	next.Recovered = true
	if err := next.write(dir); err != nil {
		return err
	}
	*i = next
	return log.Recover(i.Member)
}

// TakePart notes that the node takes part, which matters after Recover only.
func (i *Identity) TakePart(dir segment.FS) error {
	if !i.Recovered {
		return nil
	}
	next := *i
	next.Recovered = false
	if err := next.write(dir); err != nil {
		return err
	}
	*i = next
	return nil
}

func beginJoined(dir segment.FS, founder uint64, filled bool) error {
	if !filled {
		return begin(dir, founder, BaseIndex)
	}
	names, err := dir.List()
	if err == nil && (len(entrylog.Files(names)) == 0 || len(checkpoint.Files(names)) == 0) {
		err = errors.New("the directory was filled, but has no log or no checkpoint")
	}
	return err
}

// Restored makes a directory with a backup of a node the first node of a new cluster. The log of the backup is open.
func Restored(dir segment.FS, log *entrylog.Log, node string) (*Identity, error) {
	i, err := draw(node)
	if err != nil {
		return nil, err
	}
	if i.Cluster, err = drawCluster(); err != nil {
		return nil, err
	}
	i.Founder = i.Member
	if err := log.Recover(i.Member); err != nil {
		return nil, err
	}
	return i, i.write(dir)
}

// draw returns the identity of a new member that has no cluster yet.
func draw(node string) (*Identity, error) {
	if err := cluster.CheckName(node); err != nil {
		return nil, err
	}
	i := &Identity{Version: version, Epoch: firstEpoch, Node: node}
	for i.Member == 0 {
		var random [8]byte
		if _, err := rand.Read(random[:]); err != nil {
			return nil, err
		}
		i.Member = binary.LittleEndian.Uint64(random[:]) >> 1 // Raft reserves numbers at the upper end
	}
	return i, nil
}

// drawCluster returns the id of a new cluster.
func drawCluster() (string, error) {
	var id [16]byte
	_, err := rand.Read(id[:])
	return hex.EncodeToString(id[:]), err
}

// begin creates the log. It replaces the empty log of an earlier attempt. A log with entries, or with a
// checkpoint beside it, is an error, since the node of that log has lost its identity.
func begin(dir segment.FS, founder, base uint64) error {
	used := false
	switch l, err := entrylog.Open(dir, entrylog.Options{}); {
	case errors.Is(err, entrylog.ErrNone):
	case err != nil:
		return fmt.Errorf("begin the log of the group: %w", err)
	default:
		used = l.Last() > l.Base()
		if err := l.Close(); err != nil {
			return fmt.Errorf("begin the log of the group: %w", err)
		}
	}
	names, err := dir.List()
	if err != nil {
		return fmt.Errorf("begin the log of the group: %w", err)
	}
	if used || len(checkpoint.Files(names)) > 0 {
		return fmt.Errorf("the directory has the log of a node, but not its %s: restore that file from a backup of "+
			"this directory, or use another directory", File)
	}
	for _, f := range entrylog.Files(names) {
		if err := dir.Remove(f.Name); err != nil {
			return fmt.Errorf("begin the log of the group: %w", err)
		}
	}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return err
	}
	log, err := entrylog.Create(dir, entrylog.Options{Mark: binary.LittleEndian.Uint32(mark[:])}, entrylog.Base{
		Index: base, Term: BaseTerm, Members: &raftpb.ConfState{Voters: []uint64{founder}}})
	if err != nil {
		return fmt.Errorf("begin the log of the group: %w", err)
	}
	return log.Close()
}

// write writes the file, which is whole or absent even after a power loss.
func (i *Identity) write(dir segment.FS) error {
	text, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	text = bytes.TrimSuffix(text, []byte("\n}"))
	text = fmt.Appendf(text, "%s%q\n}\n", sumField, checksum(text))
	const temp = File + ".tmp"
	f, err := dir.Create(temp)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = dir.Rename(temp, File)
	}
	if err == nil {
		err = dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("write the node's identity: %w", err)
	}
	i.summed = true
	return nil
}
