package mapping

import "github.com/prometheus/prometheus/model/labels"

// Constant returns the constant labels. A series gets each of them unless its sender gave that
// label.
func (m *Mapper) Constant() labels.Labels {
	b := labels.NewScratchBuilder(len(m.constant))
	for _, c := range m.constant {
		b.Add(c.name, c.value)
	}
	b.Sort()
	return b.Labels()
}
