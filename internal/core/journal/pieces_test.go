package journal

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// cutSections writes a checkpoint of three shards with frames of at most 64 bytes, and a journal
// after it. The sections take one frame, nine pieces and two pieces.
func cutSections(t testing.TB) (fs *memfs.FS, want map[uint16][]byte) {
	t.Helper()
	fs = memfs.New()
	l, _, err := Open(fs, Options{Mark: testMark, SectionBytes: 64})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]Frame{{Shard: 1}, {Shard: 2}, {Shard: 3}}); err != nil {
		t.Fatal(err)
	}
	want = map[uint16][]byte{}
	for shard, n := range map[uint16]int{1: 64, 2: 9*60 - 5, 3: 65} {
		for i := range n {
			want[shard] = append(want[shard], byte(i*7+int(shard)))
		}
	}
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	for shard := range uint16(3) {
		if err := c.Section(shard+1, c.Base(), want[shard+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	return fs, want
}

// loaded returns the sections that a start loads.
func loaded(t testing.TB, fs segment.FS) (got map[uint16][]byte, report Report) {
	t.Helper()
	l, report, err := Open(fs, Options{Mark: testMark})
	if err != nil {
		t.Fatal(err)
	}
	got = map[uint16][]byte{}
	err = l.Load(func(shard uint16, _ Position, payload []byte) error {
		got[shard] = bytes.Clone(payload)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, report
}

// A section that is too long for a frame is cut, and comes back whole. In the past, such a section made
// its checkpoint and all later ones fail, and the journal grew for ever.
func TestALongSectionIsCut(t *testing.T) {
	fs, want := cutSections(t)
	got, report := loaded(t, fs)
	if fmt.Sprint(got) != fmt.Sprint(want) || len(report.Damage) > 0 || report.Sections != 3 {
		t.Errorf("loaded %v: %+v", got, report)
	}
}

// If a byte is flipped anywhere, or a piece is cut out or doubled, each section is there as a whole
// or not at all, and the damage is reported.
func TestDamageToAPieceCostsTheSection(t *testing.T) {
	fs, want := cutSections(t)
	name := checkpointFormat.Name(3)
	data := fs.Files[name].Data
	broken := map[string][]byte{}
	for i := range data {
		flipped := bytes.Clone(data)
		flipped[i] ^= 0x40
		broken[fmt.Sprint("byte ", i)] = flipped
	}
	var frames []int
	for i := segment.HeaderBytes; i < len(data); i += segment.FrameBytes + int(order.Uint32(data[i+8:])) {
		frames = append(frames, i)
	}
	if frames = append(frames, len(data)); len(frames) != 1+1+9+2+1 {
		t.Fatalf("frames at %v", frames)
	}
	for i := range len(frames) - 1 {
		from, to := frames[i], frames[i+1]
		broken[fmt.Sprint("without frame ", i)] = slices.Delete(bytes.Clone(data), from, to)
		broken[fmt.Sprint("with frame twice ", i)] = slices.Insert(bytes.Clone(data), to, data[from:to]...)
	}
	lost := map[int]int{}
	for what, data := range broken {
		fs.Files[name].Data = data
		got, report := loaded(t, fs)
		for shard, section := range got {
			if !bytes.Equal(section, want[shard]) {
				t.Fatalf("%s: shard %d has only part of its state, %d bytes of %d", what, shard, len(section), len(want[shard]))
			}
		}
		if len(report.Damage) == 0 && len(got) < len(want) {
			t.Errorf("%s: no damage is reported", what)
		}
		lost[len(want)-len(got)]++
	}
	if lost[1] < 100 || lost[0] == 0 {
		t.Errorf("one section was lost in %d cases, want at least 100; no section was lost in %d cases, want at "+
			"least 1", lost[1], lost[0])
	}
}
