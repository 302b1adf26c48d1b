package tsdb

import (
	"bytes"
	"testing"
)

func goldenHeadNote() headNote {
	return headNote{segment: 7, offset: 65_536, before: 1000, highest: 1001, bytes: 400_000_000,
		log:    logEnd{checkpoint: 4, segment: 7, size: 70_000, tail: 0x01020304},
		chunks: logEnd{checkpoint: -1, segment: 3, size: 5000, tail: 0x05060708}, sum: 0x090a0b0c}
}

// All later versions must read the file in testdata.
func TestGoldenHeadNote(t *testing.T) {
	checkGolden(t, "testdata/headnote", goldenHeadNote())
}

// FuzzHeadNote: each value of headNote has exactly one valid encoding.
func FuzzHeadNote(f *testing.F) {
	golden := goldenHeadNote()
	f.Add(golden.append(nil))
	f.Add((&headNote{}).append(nil))
	f.Add([]byte(headNoteMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n headNote
		if n.parse(b) == nil && !bytes.Equal(n.append(nil), b) {
			t.Errorf("%x is read as %+v, which is saved as %x", b, n, n.append(nil))
		}
	})
}
