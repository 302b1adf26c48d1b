package queue

import "github.com/freshet-io/freshet/internal/core/segment"

const doneMagic = "FRSHDONE"

// segmentFormat is the format of the queue's files, for core/segment.
var segmentFormat = segment.Format{
	Noun: "queue segment", Magic: "FRSHQUEU", Suffix: ".segment", MaxPayload: MaxPayload, Stamped: true,
}

// onDisk returns a frame as it is stored: the number of samples becomes the tag, the time becomes
// the stamp.
func onDisk(f *Frame) segment.Frame {
	return segment.Frame{Tag: f.Samples, Stamp: uint64(f.Time), Payload: f.Payload}
}

// frameOf is the inverse of onDisk.
func frameOf(f *segment.Frame) Frame {
	return Frame{Time: int64(f.Stamp), Samples: f.Tag, Payload: f.Payload}
}
