// Package skip has the entries of a group's log that an operator has told a member to leave out, since no member can
// apply them. The file skipped.json in the data directory lists them: docs/format/cluster.md.
package skip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// File is the name of the list's file in the data directory.
const File = "skipped.json"

// Entry is an entry that is left out.
type Entry struct {
	Index   uint64 `json:"index"`
	SHA256  string `json:"sha256"`  // of its bytes: the log may get another entry at this index, if this one was never committed
	What    string `json:"what"`    // a description of its contents
	Samples uint64 `json:"samples"` // in it; 0 if it cannot be read
}

// List are all entries that a member leaves out.
type List []Entry

// Find returns the entry of the list that an entry of the log is, or nil.
func (l List) Find(index uint64, data []byte) *Entry {
	for i := range l {
		if l[i].Index == index && l[i].SHA256 == hash(data) {
			return &l[i]
		}
	}
	return nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Of describes an entry of the log as far as it can be read.
func Of(index uint64, data []byte) (e Entry) {
	e = Entry{Index: index, SHA256: hash(data)}
	defer func() {
		if cause := recover(); cause != nil { // the reason for which it cannot be applied may be here, too
			e.What, e.Samples = fmt.Sprintf("an entry that cannot be read: %v", cause), 0
		}
	}()
	var in entry.Entry
	if err := in.Parse(data); err != nil {
		e.What = fmt.Sprintf("an entry that cannot be read: %v", err)
		return e
	}
	e.What, e.Samples = describe(&in)
	return e
}

func describe(in *entry.Entry) (what string, samples uint64) {
	switch in.Kind {
	case entry.KindWindows:
		pushes := 0
		for p := range in.Windows.Pushes.All() {
			pushes++
			samples += inPush(p)
		}
		return fmt.Sprintf("DogStatsD windows of %d processes", pushes), samples
	case entry.KindRequest:
		return "a request of " + from(&in.Request), inBody(&in.Request)
	case entry.KindDeltas:
		return "OTLP deltas of " + from(&in.Request), inBody(&in.Request)
	case entry.KindEvents:
		for range in.Events.List.All() {
			samples++
		}
		return fmt.Sprintf("events of tenant %q", in.Events.Tenant), samples
	case entry.KindBoundary:
		return "the end of a tile: the next one closes the tile later", 0
	}
	return fmt.Sprintf("a decision of the cluster, of kind %d", in.Kind), 0
}

func from(r *entry.Request) string {
	return fmt.Sprintf("tenant %q from %v", r.Tenant, r.Sender)
}

func inPush(bytes []byte) (samples uint64) {
	p, err := entry.ParsePush(bytes)
	if err != nil {
		return 0
	}
	for b := range p.Batches.All() {
		samples += batch.Samples(b)
	}
	return samples
}

// maxBody bounds a decompressed body, in bytes.
const maxBody = 1 << 30

// inBody returns the number of samples and histograms in a request; 0 if it cannot be read.
func inBody(e *entry.Request) uint64 {
	body, err := remotewrite.Decompress(nil, e.Body, maxBody)
	if err != nil {
		return 0
	}
	var r remotewrite.Request
	if e.Form == entry.RemoteWrite2 {
		err = r.DecodeV2(body)
	} else {
		err = r.DecodeV1(body)
	}
	if err != nil {
		return 0
	}
	samples := 0
	for i := range r.Series {
		samples += len(r.Samples(&r.Series[i])) + len(r.Histograms(&r.Series[i]))
	}
	return uint64(samples)
}
