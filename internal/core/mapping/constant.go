package mapping

import "github.com/prometheus/prometheus/model/labels"

// Constant returns the labels that every series gets, except those that its sender gave itself.
func (m *Mapper) Constant() labels.Labels {
	b := labels.NewScratchBuilder(len(m.constant))
	for _, c := range m.constant {
		b.Add(c.name, c.value)
	}
	b.Sort()
	return b.Labels()
}
