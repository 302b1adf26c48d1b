package blocks

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// A bucket may keep downsampled blocks for longer than those of raw samples.
func TestUncovered(t *testing.T) {
	const hour = 3_600_000
	block := func(cluster string, from, to int64) Block {
		b := Block{External: labels.FromStrings("cluster", cluster)}
		b.Meta.MinTime, b.Meta.MaxTime = from*hour, to*hour
		return b
	}
	for _, c := range []struct {
		name         string
		some, others []Block
		want         []Span // hours
	}{
		{"none", nil, []Block{block("eu", 0, 48)}, nil},
		{"the same time", []Block{block("eu", 0, 48)}, []Block{block("eu", 0, 48)}, nil},
		{"no others", []Block{block("eu", 0, 48)}, nil, []Span{{0, 48}}},
		{"two resolutions, of which the later reaches further", []Block{block("eu", 0, 48), block("eu", 24, 96)}, nil,
			[]Span{{0, 96}}},
		{"the others begin later", []Block{block("eu", 0, 48)}, []Block{block("eu", 40, 60)}, []Span{{0, 40}}},
		{"a hole", []Block{block("eu", 0, 48)}, []Block{block("eu", 30, 48), block("eu", 0, 20)}, []Span{{20, 30}}},
		{"the last samples of a block are in front of its end", []Block{block("eu", 0, 48)},
			[]Block{block("eu", 0, 23), block("eu", 24, 48)}, nil},
		{"another cluster", []Block{block("eu", 0, 48)}, []Block{block("us", 0, 48)}, []Span{{0, 48}}},
	} {
		got := Uncovered(c.some, c.others)
		for i := range got {
			got[i] = Span{got[i].From / hour, got[i].To / hour}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: uncovered are %v, want %v", c.name, got, c.want)
		}
	}
}
