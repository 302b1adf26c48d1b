package metadata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

func all(s *Store, tenant string) string {
	var words []string
	s.All(tenant, func(name string, m metadata.Metadata) bool {
		words = append(words, fmt.Sprintf("%s:%s:%s:%s", name, m.Type, m.Help, m.Unit))
		return true
	})
	return strings.Join(words, " ")
}

func TestFamilies(t *testing.T) {
	s := New()
	s.Families("a", []remotewrite.Family{
		{Name: []byte("up"), Help: []byte("it is"), Type: remotewrite.GaugeType},
		{Name: []byte("b"), Type: 99},
		{Name: []byte(""), Type: remotewrite.GaugeType},
		{Name: []byte("big"), Help: []byte(strings.Repeat("é", maxText)), Unit: []byte("s\xff")},
	})
	s.Families("a", []remotewrite.Family{{Name: []byte("up"), Help: []byte("it was"), Type: remotewrite.CounterType}})
	if want := "b:unknown:: big:unknown:" + strings.Repeat("é", maxText/2) + ":s up:counter:it was:"; all(s, "a") != want {
		t.Errorf("%.200s", all(s, "a"))
	}
	if all(s, "b") != "" {
		t.Error("another tenant sees the metadata")
	}
}

func TestPartsSpeakForTheWhole(t *testing.T) {
	s := New()
	var r remotewrite.Request
	for name, kind := range map[string]remotewrite.MetricType{
		"h_bucket": remotewrite.HistogramType, "s_sum": remotewrite.SummaryType, "c_count": remotewrite.CounterType,
		"native": remotewrite.HistogramType,
	} {
		s.Series("a", name, &r, remotewrite.Metadata{Type: kind})
	}
	s.Series("a", "silent", &r, remotewrite.Metadata{})
	if got := all(s, "a"); got != "c_count:counter:: h:histogram:: native:histogram:: s:summary::" {
		t.Error(got)
	}
}

func TestBytesAreBounded(t *testing.T) {
	s := New()
	help := []byte(strings.Repeat("x", maxText))
	for round := range 3 { // repeated metadata takes no more memory
		for i := range 2 * maxBytes / maxText {
			s.Families("a", []remotewrite.Family{{Name: fmt.Append(nil, i), Help: help[:maxText-round]}})
		}
	}
	bytes := 0
	for name, m := range s.tenants["a"].names {
		bytes += len(name) + len(m.Help)
	}
	if bytes > maxBytes || bytes < maxBytes*9/10 || bytes != s.tenants["a"].bytes {
		t.Errorf("names and texts have %d bytes, want at most %d; the store counts %d", bytes, maxBytes, s.tenants["a"].bytes)
	}
}

func TestNamesAreBounded(t *testing.T) {
	s := New()
	for i := range maxNames + 10 {
		s.Families("a", []remotewrite.Family{{Name: fmt.Append(nil, i)}})
	}
	if n := len(s.tenants["a"].names); n != maxNames {
		t.Errorf("%d names", n)
	}
}
