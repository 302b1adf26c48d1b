package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// grafanaExpressions returns what Grafana asks once it is provisioned from deploy/grafana: the expressions of panels,
// and of alert rules, which a test of deploy/monitoring holds equal to those of alerts.yaml. The variable $instance
// has the value that its own query finds.
func grafanaExpressions(t *testing.T, instance string) (all []monitored) {
	t.Helper()
	all = panelExpressions(t, instance)
	for _, r := range alertRules(t) {
		all = append(all, monitored{r.Alert, r.Expr})
	}
	return append(all, alertParts(t)...)
}

// sameAnswers checks that a Freshet with the samples of a Prometheus answers everything that Grafana asks with the same
// series and values as the Prometheus: at one time, and for a graph.
func sameAnswers(t *testing.T, prometheus, copied *process) {
	t.Helper()
	const instances = `up{job="freshet"}` // of the variable
	up, err := prometheus.query(instances)
	if err != nil || len(up) != 1 {
		t.Fatal(up, err)
	}
	at := time.Now().Truncate(time.Second)
	newest := fmt.Sprintf("timestamp(%s) >= %d", instances, at.Unix())
	eventually(t, time.Minute, "the samples have come", func() error {
		if got, err := copied.query(newest); err != nil || len(got) == 0 {
			return fmt.Errorf("Freshet has no sample since %v: %v", at, err)
		}
		return nil
	})
	all := append(grafanaExpressions(t, up[0].Metric["instance"]), monitored{"the variable instance", instances})
	var answers, values int
	eventually(t, time.Minute, "both give the same answers", func() error {
		answers, values = 0, 0
		var differences []error
		for _, m := range all {
			for path, params := range map[string]url.Values{
				"/api/v1/query": {"time": {strconv.FormatInt(at.Unix(), 10)}},
				"/api/v1/query_range": {"start": {strconv.FormatInt(at.Add(-30*time.Second).Unix(), 10)},
					"end": {strconv.FormatInt(at.Unix(), 10)}, "step": {"5"}},
			} {
				params.Set("query", m.expr)
				n, err := sameAnswer(prometheus, copied, path, params)
				if err != nil {
					differences = append(differences, fmt.Errorf("%s: %s %s: %w", m.in, path, m.expr, err))
				}
				answers += min(n, 1)
				values += n
			}
		}
		return errors.Join(differences...)
	})
	if answers < 100 {
		t.Errorf("only %d of %d questions have an answer", answers, 2*len(all))
	}
	t.Logf("%d expressions, asked at one time and for a graph: %d have an answer, with %d values, the same in both",
		len(all), answers, values)
}

// sameAnswer returns the number of values in the answer of both servers, or how their answers differ.
func sameAnswer(prometheus, copied *process, path string, params url.Values) (int, error) {
	want, err := prometheus.numbers(path, params)
	if err != nil {
		return 0, err
	}
	got, err := copied.numbers(path, params)
	if err != nil {
		return 0, err
	}
	if difference := unlike(want, got); difference != "" {
		return 0, errors.New(difference)
	}
	return len(want), nil
}

// numbers returns the values of a query by series and time. A histogram is its text.
func (p *process) numbers(path string, params url.Values) (map[string]string, error) {
	var data struct {
		Result []struct {
			Metric     map[string]string
			Value      []json.RawMessage
			Values     [][]json.RawMessage
			Histogram  []json.RawMessage
			Histograms [][]json.RawMessage
		}
	}
	if err := p.ask(path, params, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", params.Get("query"), err)
	}
	all := map[string]string{}
	for _, r := range data.Result {
		for _, v := range append(append(r.Values, r.Histograms...), r.Value, r.Histogram) {
			if len(v) == 2 {
				all[fmt.Sprint(r.Metric)+" at "+string(v[0])] = string(v[1])
			}
		}
	}
	return all, nil
}

// unlike says how two answers differ, or nothing. Numbers may differ by what another order of a sum can change.
func unlike(want, got map[string]string) string {
	for key, w := range want {
		g, has := got[key]
		if !has {
			return fmt.Sprintf("Freshet has no %s, which is %s", key, w)
		}
		a, errA := strconv.ParseFloat(strings.Trim(w, `"`), 64)
		b, errB := strconv.ParseFloat(strings.Trim(g, `"`), 64)
		if w != g && (errA != nil || errB != nil || math.Abs(a-b) > 1e-9*math.Abs(a)) {
			return fmt.Sprintf("%s is %s, and %s in Freshet", key, w, g)
		}
	}
	for key, g := range got {
		if _, has := want[key]; !has {
			return fmt.Sprintf("Freshet has %s, which is %s", key, g)
		}
	}
	return ""
}
