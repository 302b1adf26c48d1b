package labelrules

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// requests returns one series with these labels (name, value, …) as a request of each version.
func requests(t *testing.T, ls []string) (both [2]*remotewrite.Request) {
	t.Helper()
	symbols := writev2.NewSymbolTable()
	var one prompb.TimeSeries
	var two writev2.TimeSeries
	for i := 0; i < len(ls); i += 2 {
		one.Labels = append(one.Labels, prompb.Label{Name: ls[i], Value: ls[i+1]})
		two.LabelsRefs = append(two.LabelsRefs, symbols.Symbolize(ls[i]), symbols.Symbolize(ls[i+1]))
	}
	body1, err1 := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{one}}).Marshal()
	body2, err2 := (&writev2.Request{Timeseries: []writev2.TimeSeries{two}, Symbols: symbols.Symbols()}).Marshal()
	both = [2]*remotewrite.Request{{}, {}}
	for _, err := range []error{err1, err2, both[0].DecodeV1(body1), both[1].DecodeV2(body2)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return both
}

func step(action, source, regex, target, replacement string) *relabel.Config {
	c := relabel.DefaultRelabelConfig
	c.Action, c.Regex, c.TargetLabel, c.NameValidationScheme = relabel.Action(action), relabel.MustNewRegexp(regex),
		target, model.UTF8Validation
	if source != "" {
		c.SourceLabels = model.LabelNames{model.LabelName(source)}
	}
	if replacement != "" {
		c.Replacement = replacement
	}
	return &c
}

func TestResolve(t *testing.T) {
	limits := Rules{Limits: Limits{Labels: 3, NameBytes: 8, ValueBytes: 10}}
	for _, c := range []struct {
		why    string
		rules  Rules
		labels string // name=value, separated by blanks
		want   string // empty if the series is dropped or refused
		reason outcome.Reason
		text   string // text of the refusal; empty if there is none
	}{
		{"as they are", Rules{}, "__name__=up job=a", `{__name__="up", job="a"}`, 0, ""},
		{"any UTF-8 is a name, as in Prometheus 3", Rules{}, "__name__=http.requests größe=1",
			`{__name__="http.requests", "größe"="1"}`, 0, ""},
		{"a capital comes before the name", Rules{}, "Zone=a __name__=up", `{Zone="a", __name__="up"}`, 0, ""},
		{"a label without a value does not count", Rules{}, "__name__=up empty= job=a", `{__name__="up", job="a"}`, 0, ""},
		{"no name", Rules{}, "job=a", "", outcome.BadLabels, "__name__ is missing"},
		{"an empty name", Rules{}, "__name__= job=a", "", outcome.BadLabels, "__name__ is missing"},
		{"no labels", Rules{}, "", "", outcome.BadLabels, "__name__ is missing"},
		{"a label without a name", Rules{}, "=x __name__=up", "", outcome.BadLabels, "label 1 has no name"},
		{"a name that is not UTF-8", Rules{}, "__name__=up a\xff=x", "", outcome.BadLabels, `"a\xff" is not UTF-8`},
		{"a value that is not UTF-8", Rules{}, "__name__=up a=x\xff", "", outcome.BadLabels,
			`"x\xff" of label a is not UTF-8`},
		{"twice, which Prometheus answers with 204 and stores nothing",
			Rules{}, "__name__=up a=1 a=1", "", outcome.BadLabels, "a occurs twice"},
		{"twice, and not side by side", Rules{}, "a=1 __name__=up a=1", "", outcome.BadLabels, "a occurs twice"},
		{"twice, once without a value", Rules{}, "a= __name__=up a=1", "", outcome.BadLabels, "a occurs twice"},
		{"a label without a name at the end", Rules{}, "__name__=up a=1 =x", "", outcome.BadLabels, "label 3 has no name"},
		{"not sorted, as vmagent and several small clients send",
			Rules{}, "job=b __name__=up Zone=c a=1", `{Zone="c", __name__="up", a="1", job="b"}`, 0, ""},
		{"not sorted, and relabelled",
			Rules{Replica: "r", Relabel: []*relabel.Config{step("replace", "job", "(.)", "job", "x$1")}},
			"r=2 job=a __name__=up", `{__name__="up", job="xa"}`, 0, ""},
		{"as many labels as allowed", limits, "__name__=up a=1 b=1", `{__name__="up", a="1", b="1"}`, 0, ""},
		{"one label too many", limits, "__name__=up a=1 b=1 c=1", "", outcome.TooManyLabels,
			"4 labels, and distributor.max_labels allows 3"},
		{"a long name", limits, "__name__=up aaaaaaaaa=1", "", outcome.TooLongLabel,
			"has 9 bytes, and distributor.max_label_name allows 8"},
		{"a long value", limits, "__name__=up a=01234567890", "", outcome.TooLongLabel,
			"has 11 bytes, and distributor.max_label_value allows 10"},
		{"the replicas of an HA pair send one series", Rules{Replica: "__replica__"}, "__name__=up __replica__=b job=a",
			`{__name__="up", job="a"}`, 0, ""},
		{"a rule drops it", Rules{Relabel: []*relabel.Config{step("drop", "job", "a", "", "")}}, "__name__=up job=a", "", 0,
			""},
		{"a rule changes a label", Rules{Relabel: []*relabel.Config{step("replace", "job", "(.)", "job", "x$1")}},
			"__name__=up job=a", `{__name__="up", job="xa"}`, 0, ""},
		{"a rule removes all labels", Rules{Relabel: []*relabel.Config{step("labeldrop", "", ".*", "", "")}},
			"__name__=up job=a", "", 0, ""},
		{"a rule removes the name", Rules{Relabel: []*relabel.Config{step("labeldrop", "", "__name__", "", "")}},
			"__name__=up job=a", "", outcome.BadLabels, "removed the label __name__"},
	} {
		var list []string
		for word := range strings.FieldsSeq(c.labels) {
			name, v, _ := strings.Cut(word, "=")
			list = append(list, name, v)
		}
		for version, r := range requests(t, list) {
			ls, refusal := c.rules.Resolve(r, &r.Series[0])
			got := ""
			if !ls.IsEmpty() {
				got = ls.String()
			}
			if got != c.want || (refusal != nil) != (c.text != "") {
				t.Errorf("%s, version %d: got the labels %s, want %s; refusal %v, want %q",
					c.why, version+1, got, c.want, refusal, c.text)
			} else if refusal != nil && (refusal.Reason != c.reason || !strings.Contains(refusal.Cause.Error(), c.text)) {
				t.Errorf("%s, version %d: got the refusal %v: %v, want %v: %s",
					c.why, version+1, refusal.Reason, refusal.Cause, c.reason, c.text)
			}
		}
	}
}

// The labels of a series outlive the series' request, whose memory is reused.
func TestLabelsAreACopy(t *testing.T) {
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__",
		Value: "up"}, {Name: "job", Value: "a"}}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range []Rules{{}, {Relabel: []*relabel.Config{step("replace", "job", "(.)", "team", "x$1")}}} {
		read := append([]byte(nil), body...)
		var r remotewrite.Request
		if err := r.DecodeV1(read); err != nil {
			t.Fatal(err)
		}
		ls, refusal := rules.Resolve(&r, &r.Series[0])
		before := ls.String()
		for i := range read {
			read[i] = 0xdb
		}
		if refusal != nil || ls.String() != strings.Clone(before) || strings.Contains(ls.String(), "\xdb") ||
			ls.Get("job") != "a" {
			t.Errorf("labels %q after the request's memory was overwritten; refusal %v", ls.String(), refusal)
		}
	}
}

// A request may refer to one long value a million times. Resolve looks at no more labels than a
// series may have, and Text writes only the first ones.
func TestAMillionLabels(t *testing.T) {
	symbols := writev2.NewSymbolTable()
	name, value := symbols.Symbolize("__name__"), symbols.Symbolize(strings.Repeat("v", 1<<20))
	for n, want := range map[int]string{5000: "the series has 5000 labels, and distributor.max_labels allows 100",
		1 << 20: "the series has more than 10000 labels"} {
		one := writev2.TimeSeries{LabelsRefs: slices.Repeat([]uint32{name, value}, n)}
		body, err := (&writev2.Request{Timeseries: []writev2.TimeSeries{one}, Symbols: symbols.Symbols()}).Marshal()
		var r remotewrite.Request
		if err == nil {
			err = r.DecodeV2(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		rules := Rules{Limits: Limits{Labels: 100}}
		if _, refused := rules.Resolve(&r, &r.Series[0]); refused == nil || refused.Reason != outcome.TooManyLabels ||
			refused.Cause.Error() != want {
			t.Errorf("%d labels: %+v", n, refused)
		}
		if text := Text(&r, &r.Series[0]); len(text) > 3*maxText {
			t.Errorf("%d labels: a text of %d bytes", n, len(text))
		}
	}
}
