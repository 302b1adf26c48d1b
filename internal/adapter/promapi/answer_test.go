package promapi

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// The buffer of a large answer fits: it is not grown, which would copy the answer, and little of it stays unused.
func TestAnswersFitTheirBuffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for what, value := range map[string]func(i int) float64{
		"counters": func(i int) float64 { return float64(1_000_000 + 7*i) },
		"rates":    func(int) float64 { return r.Float64() * 100 },
		"small":    func(i int) float64 { return float64(i % 2) },
	} {
		for _, fraction := range []int64{0, 123} {
			var m promql.Matrix
			for n := range 20 {
				s := promql.Series{Metric: labels.FromStrings("__name__", "x_total", "instance", fmt.Sprint("host-", n))}
				for i := range 400 {
					s.Floats = append(s.Floats, promql.FPoint{T: 1_700_000_000_000 + int64(i)*60_000 + fraction, F: value(i)})
				}
				m = append(m, s)
			}
			answer := &v1.Response{Status: "success", Data: &v1.QueryData{ResultType: m.Type(), Result: m}}
			text, err := encoder{}.Encode(answer)
			if err != nil {
				t.Fatal(err)
			}
			if estimate := fixedJSON + jsonBytes(m); len(text) > estimate || 4*len(text) < 3*estimate {
				t.Errorf("%s: the buffer has %d bytes for an answer of %d", what, estimate, len(text))
			}
		}
	}
}
