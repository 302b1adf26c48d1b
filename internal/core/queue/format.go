package queue

import "github.com/freshet-io/freshet/internal/core/segment"

const doneMagic = "FRSHDONE"

// segmentFormat is what core/segment needs to know of the queue's files.
var segmentFormat = segment.Format{Noun: "queue segment", Magic: "FRSHQUEU", Suffix: ".segment", MaxPayload: MaxRecord, Stamped: true}

// frameOf is a record on disk: its samples are the tag, its time the stamp.
func frameOf(r *Record) segment.Frame {
	return segment.Frame{Tag: r.Samples, Stamp: uint64(r.Time), Payload: r.Payload}
}

// recordOf is the inverse of frameOf.
func recordOf(f *segment.Frame) Record {
	return Record{Time: int64(f.Stamp), Samples: f.Tag, Payload: f.Payload}
}
