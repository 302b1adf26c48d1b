package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/dashboard"
	"github.com/freshet-io/freshet/internal/lib/build"
)

// comparison is what the old Prometheus and the server answered.
type comparison struct {
	Compared    int          `json:"compared"` // queries that had an answer at the old Prometheus
	Differences []difference `json:"differences"`
}

// difference is a query whose answers differ.
type difference struct {
	dashboard.Query
	Why string `json:"why"`
}

func (d *difference) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n    was %s\n    is  %s\n", terminal.Printable(d.Place.String()), terminal.Printable(d.Why),
		terminal.Printable(d.Was), terminal.Printable(d.Is))
}

// quantileLabel is the label of a summary's series. Converted queries have it in a string if their series keep it.
const quantileLabel = "quantile"

// asks sends a query to a server.
type asks func(ctx context.Context, path string, params url.Values) ([]byte, apiclient.Answer, error)

// old returns the old Prometheus. Only its name and how to read its answers count: requests would have the user's
// token for Freshet.
func (c *conversion) old() apiclient.Server { return apiclient.Server{Address: c.check} }

// askOld asks the old Prometheus. It never gets the user's token for Freshet.
func (c *conversion) askOld(ctx context.Context, path string, params url.Values) ([]byte, apiclient.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, apiclient.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(apiclient.WithScheme(c.check), "/")+path+"?"+params.Encode(), nil)
	if err != nil {
		return nil, apiclient.Answer{}, err
	}
	r.Header.Set("User-Agent", build.UserAgent())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, apiclient.Answer{}, err
	}
	return c.old().Read(resp)
}

// compare asks the old Prometheus each query of a dashboard, and the server the converted one, at one time.
func (c *conversion) compare(ctx context.Context, d *dashboard.Conversion) (comparison, error) {
	all := comparison{Differences: []difference{}}
	at := time.Now().Add(-2 * time.Second).Truncate(10 * time.Second) // the end of a tile that both servers have
	for _, q := range d.Queries {
		if q.Variable {
			continue
		}
		without := append([]string{model.MetricNameLabel}, c.options.DropLabels...)
		if q.Was != q.Is && !strings.Contains(q.Is, `"`+quantileLabel+`"`) {
			without = append(without, quantileLabel)
		}
		was, err := answerOf(ctx, c.askOld, d.Filled(q.Was), at, without)
		if err != nil {
			return all, fmt.Errorf("--check: %s: %w", q.Place, err)
		}
		is, err := answerOf(ctx, c.server.Ask, d.Filled(q.Is), at, without)
		if err != nil {
			return all, fmt.Errorf("%s: %w", q.Place, err)
		}
		if len(was) > 0 {
			all.Compared++
		}
		if why := c.differ(was, is); why != "" {
			all.Differences = append(all.Differences, difference{q, why})
		}
	}
	return all, nil
}

// valuesBy has the values of series by their labels. Several values stand for series that differ only in labels that
// are not compared.
type valuesBy map[string][]float64

// answerOf asks a query. It leaves out labels that are not compared.
func answerOf(ctx context.Context, ask asks, query string, at time.Time, without []string) (valuesBy, error) {
	_, a, err := ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {strconv.FormatInt(at.Unix(), 10)}})
	if err != nil {
		return nil, err
	}
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := json.Unmarshal(a.Data, &data); err != nil {
		return nil, err
	}
	var series []struct {
		Metric map[string]string
		Value  [2]any
	}
	if data.ResultType == "vector" {
		err = json.Unmarshal(data.Result, &series)
	}
	all := valuesBy{}
	for _, s := range series {
		left := labels.NewBuilder(labels.FromMap(s.Metric)).Del(without...).Labels()
		text, _ := s.Value[1].(string) // a histogram has none
		value, parseErr := strconv.ParseFloat(text, 64)
		if parseErr == nil {
			all[left.String()] = append(all[left.String()], value)
		}
	}
	return all, err
}

// differ says how two answers differ, or nothing. NaN, an average of nothing, equals no series.
func (c *conversion) differ(was, is valuesBy) string {
	for _, one := range []valuesBy{was, is} {
		maps.DeleteFunc(one, func(_ string, v []float64) bool { return len(v) == 1 && math.IsNaN(v[0]) })
	}
	for _, series := range slices.Sorted(maps.Keys(was)) {
		old, now := was[series], is[series]
		switch {
		case len(now) == 0:
			return fmt.Sprintf("Freshet has no %s, which was %v", series, old[0])
		case len(old) != 1 || len(now) != 1:
			return fmt.Sprintf("not compared: %d series become %d with the labels %s", len(old), len(now), series)
		case math.Abs(now[0]-old[0]) > c.tolerance*max(math.Abs(old[0]), math.Abs(now[0])):
			return fmt.Sprintf("%s was %v and is %v", series, old[0], now[0])
		}
	}
	for _, series := range slices.Sorted(maps.Keys(is)) {
		if len(was[series]) == 0 {
			return fmt.Sprintf("Freshet has %s, which was not there", series)
		}
	}
	return ""
}
