package rewrite_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// FuzzRewrite checks the bodies of any request that a reader accepts. A member can read them, and finds
// in them all that the rules left. A committed body that cannot be read would stop all members.
func FuzzRewrite(f *testing.F) {
	drop := &relabel.Config{
		Action: relabel.Drop, SourceLabels: model.LabelNames{"__name__"}, Regex: relabel.MustNewRegexp("dropped"),
		NameValidationScheme: model.UTF8Validation,
	}
	rules := &labelrules.Rules{
		Limits: labelrules.Limits{Labels: 20, NameBytes: 30, ValueBytes: 100}, Replica: "replica",
		Relabel: append(dropping("zone"), drop),
	}
	w := rewrite.Sized(200, 1<<20)
	f.Fuzz(func(t *testing.T, body []byte, v2 bool) {
		var sent write.Incoming
		decode := sent.DecodeV1
		if v2 {
			decode = sent.DecodeV2
		}
		if decode(body) != nil {
			return
		}
		bodies, o := w.Rewrite(&sent, rules)
		var applied []*remotewrite.Request
		for _, b := range bodies {
			applied = append(applied, decoded(t, b))
		}
		got, there := lines(&labelrules.Rules{}, applied...)
		there.Add(&o)
		want, wanted := lines(rules, &sent.Request)
		if fmt.Sprint(got) != fmt.Sprint(want) || withoutExample(there) != withoutExample(wanted) {
			t.Fatalf("got  %v\n%+v\nwant %v\n%+v", got, there, want, wanted)
		}
	})
}
