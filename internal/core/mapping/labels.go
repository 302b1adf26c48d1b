package mapping

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// pair is a name and a value that may become a label. An empty value means that the sender wants no
// such label: no other label with this name is added, and finish leaves the pair
// out.
type pair struct{ name, value string }

// labelSet holds the labels of a series, without its name. Names are unique after merge. Since a
// set is short, a linear search is the fastest.
type labelSet []pair

// senderLabels appends the sender's own labels to `dst`.
func (m *Mapper) senderLabels(dst labelSet, tags string, host []byte) labelSet {
	for tag := range strings.SplitSeq(tags, ",") { // dogstatsd.Tags cuts at the same places
		if tag == "" {
			continue
		}
		key, value, ok := strings.Cut(tag, ":")
		if !ok || key == "" {
			key, value = tag, "true"
		}
		dst = append(dst, pair{m.labelName(key), validUTF8(value)})
	}
	if len(host) > 0 {
		dst = append(dst, pair{"host", validUTF8(string(host))})
	}
	return dst.merge()
}

// merge joins the values of each name with commas, sorted and without repeats, so that tags in
// another order do not make a second series.
func (set labelSet) merge() labelSet {
	slices.SortFunc(set, func(a, b pair) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	set = slices.Compact(set)
	out := set[:0]
	for len(set) > 0 {
		n := 1
		for n < len(set) && set[n].name == set[0].name {
			n++
		}
		out = append(out, pair{set[0].name, set[:n].join()})
		set = set[n:]
	}
	return out
}

// join returns the values of pairs that have the same name, joined with commas. An empty value sorts
// first, and is left out if there are others.
func (set labelSet) join() string {
	if len(set) > 1 && set[0].value == "" {
		set = set[1:]
	}
	if len(set) == 1 {
		return set[0].value
	}
	var b strings.Builder
	for i, p := range set {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.value)
	}
	return b.String()
}

func (set labelSet) index(name string) int {
	return slices.IndexFunc(set, func(p pair) bool { return p.name == name })
}

// add appends a label unless the set has the name.
func (set labelSet) add(name, value string) labelSet {
	if set.index(name) >= 0 {
		return set
	}
	return append(set, pair{name, value})
}

// put sets a label, even if the set already has the name.
func (set labelSet) put(name, value string) labelSet {
	if i := set.index(name); i >= 0 {
		set[i].value = value
		return set
	}
	return append(set, pair{name, value})
}

func (set labelSet) drop(name string) labelSet {
	if i := set.index(name); i >= 0 {
		return slices.Delete(set, i, i+1)
	}
	return set
}

// restoreBound restores the label le of a bucket that a sender counted itself. labelName has renamed the
// label, since a label le may be a forgery. The bound is written as Freshet writes its own bounds, so
// that 10 and 10.0 are one bucket. Counters cannot join the buckets of a timer, since the timer owns the
// name of its buckets.
func (set labelSet) restoreBound() {
	i := set.index("tag_" + model.BucketLabel)
	if i < 0 {
		return
	}
	if bound, err := strconv.ParseFloat(set[i].value, 64); err == nil && !math.IsNaN(bound) {
		set[i] = pair{model.BucketLabel, strconv.FormatFloat(bound, 'g', -1, 64)}
	}
}

// finish sorts the labels and leaves out empty ones. It sorts by insertion, since merged labels are
// sorted already and only a few were added later.
func (set labelSet) finish() labelSet {
	set = slices.DeleteFunc(set, func(p pair) bool { return p.value == "" })
	for i := 1; i < len(set); i++ {
		if set[i-1].name <= set[i].name {
			continue
		}
		p, at := set[i], i
		for ; at > 0 && set[at-1].name > p.name; at-- {
			set[at] = set[at-1]
		}
		set[at] = p
	}
	return set
}

// labels returns the labels of the series, including the given name.
func (set labelSet) labels(name string) labels.Labels {
	b := labels.NewScratchBuilder(len(set) + 1)
	b.Add(model.MetricNameLabel, name)
	for _, p := range set {
		if p.value != "" {
			b.Add(p.name, p.value)
		}
	}
	b.Sort()
	return b.Labels()
}
