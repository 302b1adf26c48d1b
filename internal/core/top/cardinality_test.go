package top

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func TestCardinality(t *testing.T) {
	c := NewCardinality("pod")
	for _, ls := range []labels.Labels{
		labels.FromStrings("__name__", "m", "pod", "a", "code", "200"),
		labels.FromStrings("__name__", "m", "pod", "b", "code", "200"),
		labels.FromStrings("__name__", "m", "pod", "b", "code", "500"),
		labels.FromStrings("__name__", "m", "code", "200"), // pod="a" and pod="b" would join it
	} {
		if !c.Add(ls) {
			t.Fatal("no room")
		}
	}
	want := []LabelCost{{"pod", 2, 3, 2}, {"code", 2, 4, 1}}
	if got := c.Labels(); !slices.Equal(got, want) || c.Series() != 4 {
		t.Errorf("the labels of %d series cost %v, want %v", c.Series(), got, want)
	}
	if got, others := c.Values(1); others != 1 || !slices.Equal(got, []NameCount{{"b", 2}}) {
		t.Errorf("the values are %v and %d others", got, others)
	}
}

// What a label saves is what a naive count says: the distinct label sets without it.
func TestSavedSeriesAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		c, all := NewCardinality(""), map[string]labels.Labels{}
		for range r.IntN(60) {
			b := labels.NewBuilder(labels.FromStrings("__name__", "m"))
			for _, name := range []string{"a", "b", "c"} {
				if n := r.IntN(5); n > 0 {
					b.Set(name, fmt.Sprint(n))
				}
			}
			all[b.Labels().String()] = b.Labels()
		}
		for _, ls := range all {
			c.Add(ls)
		}
		for _, l := range c.Labels() {
			left := map[string]bool{}
			for _, ls := range all {
				left[labels.NewBuilder(ls).Del(l.Name).Labels().String()] = true
			}
			if l.Saved != len(all)-len(left) {
				t.Fatalf("without %s %d series are saved of %v, want %d", l.Name, l.Saved, all, len(all)-len(left))
			}
		}
	}
}

func TestCardinalityIsBounded(t *testing.T) {
	c, ls := NewCardinality(""), labels.FromStrings("__name__", "m", "a", "b")
	c.hashes = maxHashes - 4
	if !c.Add(ls) || c.Add(ls) || c.Series() != 1 {
		t.Errorf("%d series were counted, want 1", c.Series())
	}
}

func TestMostGrown(t *testing.T) {
	was := map[string]int{"gone": 9, "same": 5, "fewer": 7, "a": 1, "b": 1, "most": 3, "large": 20}
	is := map[string]int{"same": 5, "fewer": 6, "a": 3, "b": 3, "most": 9, "new": 4, "large": 21}
	want := []NameGrowth{{"most", 3, 9}, {"new", 0, 4}, {"a", 1, 3}}
	if got := MostGrown(was, is, 3); !slices.Equal(got, want) {
		t.Errorf("the most grown are %v, want %v", got, want)
	}
	if got := MostGrown(was, is, 9); !slices.Equal(got, append(want, NameGrowth{"b", 1, 3}, NameGrowth{"large", 20, 21})) {
		t.Errorf("the grown are %v, want no metric that has as many series or fewer", got)
	}
}

func TestShortDays(t *testing.T) {
	days := []DayCount{{"2026-11-29", 9, ""}, {"2026-11-28", 8, "no time"}, {"2026-11-27", 8, "store raw is broken"},
		{"2026-11-26", 0, "no time"}}
	want := "on 2026-11-28, 2026-11-26: no time; on 2026-11-27: store raw is broken"
	if got := ShortDays(days); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ShortDays(days[:1]); got != "" {
		t.Errorf("exact counts are short: %q", got)
	}
}
