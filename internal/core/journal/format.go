package journal

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

var order = binary.LittleEndian

// The formats of the journal's files, for core/segment. A checkpoint has the form of a segment
// whose frames are sections, or pieces of sections.
var (
	segmentFormat = segment.Format{Noun: "journal segment", Magic: "FRSHJRNL", Suffix: ".segment", MaxPayload: MaxPayload,
		Accept: func(tag uint32) bool { return tag>>24 == 0 && shardOf(tag) < series.Shards }}

	checkpointFormat = segment.Format{Noun: "checkpoint", Magic: "FRSHCKPT", Suffix: ".checkpoint", MaxPayload: MaxSection,
		Unordered: true,
		Accept: func(tag uint32) bool {
			return tag>>24 == 0 && shardOf(tag) < series.Shards && typeOf(tag) >= sectionFrame && typeOf(tag) <= lastPieceFrame
		}}
)

// tag returns the tag of a frame: the shard and the type.
func tag(shard uint16, typ uint8) uint32 { return uint32(shard) | uint32(typ)<<16 }

func shardOf(tag uint32) uint16 { return uint16(tag) }
func typeOf(tag uint32) uint8   { return uint8(tag >> 16) }
