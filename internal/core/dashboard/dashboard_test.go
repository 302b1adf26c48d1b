package dashboard_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dashboard"
)

var update = flag.Bool("update", false, "rewrite the converted dashboards in testdata")

// one converts a dashboard of one query, and returns the query and why parts of it were not converted.
func one(t *testing.T, o dashboard.Options, expr, legend string) (is string, why []string) {
	t.Helper()
	if o.SummaryAge == "" {
		o.SummaryAge = "10m"
	}
	target, err := json.Marshal(map[string]string{"refId": "A", "expr": expr, "legendFormat": legend})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dashboard.Convert([]byte(`{"panels":[{"title":"P","type":"timeseries","targets":[`+string(target)+`]}]}`), o)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(c.Text, &d); err != nil {
		t.Fatalf("%v\n%s", err, c.Text)
	}
	for _, n := range c.Notes {
		if n.Do == "" || n.Expr != expr || n.Panel != "P" || n.RefID != "A" {
			t.Errorf("%s: the note %+v does not say where or what to do", expr, n)
		}
		why = append(why, n.Why)
	}
	return d.Panels[0].Targets[0].Expr, why
}

// TestExpressions shows what queries become. A query with no other form stays as it is.
func TestExpressions(t *testing.T) {
	for _, c := range []struct {
		why      string
		from     dashboard.Source
		was, now string
	}{
		{"a counter has the same name", "statsd_exporter", `sum(rate(hits{code=~"5.."}[5m]))`, ``},
		{"a quantile of a summary", "statsd_exporter", `lat{quantile="0.99", host="a"}`,
			`histogram_quantile(0.99, rate(lat{host="a"}[10m]))`},
		{"with its offset", "statsd_exporter", `lat{quantile="0.5"} offset 1h`,
			`histogram_quantile(0.5, rate(lat[10m] offset 1h))`},
		{"in an expression", "statsd_exporter", `1000 * max by (route) (lat{quantile='0.9'}) > $slow`,
			`1000 * max by (route) (histogram_quantile(0.9, rate(lat[10m]))) > $slow`},
		{"of a variable", "statsd_exporter", `lat{quantile="$q",host=~"${host:regex}"}`,
			`histogram_quantile($q, rate(lat{host=~"${host:regex}"}[10m]))`},
		{"over a range", "statsd_exporter", `max_over_time(lat{quantile="0.9"}[30m])`,
			`max_over_time(histogram_quantile(0.9, rate(lat[10m]))[30m:10s])`},
		{"over a long range", "statsd_exporter", `avg_over_time(lat{quantile="0.9"}[1d] offset 1w)`,
			`avg_over_time(histogram_quantile(0.9, rate(lat[10m]))[1d:] offset 1w)`},
		{"over a range at one time: @ within a subquery would make all its steps equal", "statsd_exporter",
			`max_over_time(lat{quantile="0.9"}[30m] @ end())`,
			`max_over_time(histogram_quantile(0.9, rate(lat[10m]))[30m:10s] @ end())`},
		{"at one time", "statsd_exporter", `lat{quantile="0.9"} @ start() offset 5m`,
			`histogram_quantile(0.9, rate(lat[10m] @ start() offset 5m))`},
		{"in a subquery", "statsd_exporter", `max_over_time((lat{quantile="0.9"} offset 1h)[1d:5m] @ end())`,
			`max_over_time((histogram_quantile(0.9, rate(lat[10m] offset 1h)))[1d:5m] @ end())`},
		{"a count in a subquery", "statsd_exporter", `rate(lat_count[1h:1m]) and on (a) lat{quantile="0.9"}`,
			`rate(histogram_count(lat)[1h:1m]) and on (a) histogram_quantile(0.9, rate(lat[10m]))`},
		{"whether a summary is absent", "statsd_exporter",
			`absent(lat{quantile="0.9",a="b"}) or absent_over_time(lat_count[5m])`,
			`absent(lat{a="b"}) or absent_over_time(lat[5m])`},
		{"several quantiles keep their label", "statsd_exporter", `lat{quantile=~"0.5|0.9"}`,
			`(label_replace(histogram_quantile(0.5, rate(lat[10m])), "quantile", "0.5", "", "") or ` +
				`label_replace(histogram_quantile(0.9, rate(lat[10m])), "quantile", "0.9", "", ""))`},
		{"a quantile that is grouped by keeps its label", "statsd_exporter", `max by (quantile) (lat{quantile="0.5"})`,
			`max by (quantile) (label_replace(histogram_quantile(0.5, rate(lat[10m])), "quantile", "0.5", "", ""))`},
		{"the pattern of a quantile with points", "statsd_exporter", `lat{quantile=~"^(0\\.5|0\\.9)$"}`,
			`(label_replace(histogram_quantile(0.5, rate(lat[10m])), "quantile", "0.5", "", "") or ` +
				`label_replace(histogram_quantile(0.9, rate(lat[10m])), "quantile", "0.9", "", ""))`},
		{"the pattern of a variable with one value", "statsd_exporter", `max(lat{quantile=~"$q"})`,
			`max(histogram_quantile($q, rate(lat[10m])))`},
		{"the mean of a summary", "statsd_exporter",
			`rate(lat_sum[5m]) / rate(lat_count[5m]) and on (a) lat{quantile="0.5"}`,
			`histogram_sum(rate(lat[5m])) / histogram_count(rate(lat[5m])) and on (a) histogram_quantile(0.5, rate(lat[10m]))`},
		{"the count of a summary at one time", "statsd_exporter", `lat_count and ignoring (quantile) lat{quantile="0.5"}`,
			`histogram_count(lat) and ignoring (quantile) histogram_quantile(0.5, rate(lat[10m]))`},
		{"a count over a range", "statsd_exporter", `resets(lat_count{a="b"}[1h]) and on (a) lat{quantile="0.5"}`,
			`resets(histogram_count(lat{a="b"})[1h:]) and on (a) histogram_quantile(0.5, rate(lat[10m]))`},
		{"classic buckets stay", "statsd_exporter",
			`histogram_quantile(0.9, sum by (le) (rate(lat_bucket[5m]))) / rate(lat_count[5m])`, ``},
		{"a short rate", "statsd_exporter", `sum(rate(hits{a="$b"}[1m])) by (code)`,
			`sum(rate(hits{a="$b"}[$__rate_interval])) by (code)`},
		{"a rate over the step", "statsd_exporter", `irate(hits[$__interval])`, `irate(hits[$__rate_interval])`},
		{"a short increase keeps its meaning", "statsd_exporter", `increase(hits[1m])`, `increase(hits[1m] anchored)`},
		{"with an offset", "statsd_exporter", `increase(hits[1m] offset 1d)`, `increase(hits[1m] anchored offset 1d)`},
		{"an increase over the step", "statsd_exporter", `increase(hits[${__interval}])`,
			`increase(hits[${__interval}] anchored)`},
		{"a subquery's rate", "statsd_exporter", `max_over_time(rate(hits[30s])[1h:1m])`,
			`max_over_time(rate(hits[$__rate_interval])[1h:1m])`},
		{"ranges that are long enough, or chosen by the user", "statsd_exporter",
			`rate(hits[2m]) + rate(hits[$__rate_interval]) + rate(hits[$window]) + rate(hits[[[window]]])`, ``},
		{"blanks and commas stay", "statsd_exporter", `sum( rate (hits {code = "200",}  [ 5m ]) ) by( code , a )+x { }`, ``},
		{"the maximum over a minute", "statsd_exporter", `max_over_time(queue[1m])`, ``},
		{"labels of the scrape go", "statsd_exporter",
			`sum by (instance, code) (rate(hits{job="statsd",code!=""}[5m])) / on (instance, code) group_left () hits`,
			`sum by (code) (rate(hits{code!=""}[5m])) / on (code) group_left () hits`},
		{"a grouping by nothing else", "statsd_exporter", `sum by (job) (hits) + sum(hits) by (instance,job)`,
			`sum(hits) + sum(hits)`},
		{"comments and lines stay", "statsd_exporter", "# all [1m] of $x\nsum(\n  rate(hits[1m]) # \"\n)",
			"# all [1m] of $x\nsum(\n  rate(hits[$__rate_interval]) # \"\n)"},
		{"a name with a variable", "statsd_exporter", `${app}_lat{quantile="0.9"} / on (a) $metric{a="b"}`,
			`histogram_quantile(0.9, rate(${app}_lat[10m])) / on (a) $metric{a="b"}`},
		{"a quoted name with a variable", "statsd_exporter", `{"${app}.lat", quantile="0.9"} / on (a) {__name__="${app}_hits"}`,
			`histogram_quantile(0.9, rate({"${app}.lat"}[10m])) / on (a) {__name__="${app}_hits"}`},
		{"a quoted label with a variable", "statsd_exporter", `rate(hits{"$label"="a"}[1m])`,
			`rate(hits{"$label"="a"}[$__rate_interval])`},
		{"topk of a variable", "statsd_exporter", `topk($n, rate([[metric]]_total{a=~"[[b]]"}[1m]))`,
			`topk($n, rate([[metric]]_total{a=~"[[b]]"}[$__rate_interval]))`},

		{"a rate of StatsD", "statsd", `stats_counters_shop_hits_rate`, `rate(shop_hits[$__rate_interval])`},
		{"a count of StatsD", "statsd", `sum(stats_counters_shop_hits_count{a="b"})`,
			`sum((rate(shop_hits{a="b"}[$__rate_interval]) * 10))`},
		{"counts of an hour", "statsd", `sum_over_time(stats_counters_hits_count[1h])`, `increase(hits[1h])`},
		{"rates of an hour", "statsd", `avg_over_time(stats_counters_hits_rate[1h])`, `rate(hits[1h])`},
		{"a gauge of StatsD", "statsd", `stats_gauges_queue`, `queue`},
		{"a gauge over a range", "statsd", `max_over_time(stats_gauges_queue[5m])`, `max_over_time(queue[5m])`},
		{"dots and a variable", "statsd", `{"stats.gauges.${app}.queue", a="b"}`, `{"${app}.queue", a="b"}`},
		{"a set of StatsD", "statsd", `stats_sets_users_count`, `users`},
		{"a mean of StatsD", "statsd", `stats_timers_shop_lat_mean`, `histogram_avg(rate(shop_lat[$__rate_interval]))`},
		{"a percentile of StatsD", "statsd", `stats_timers_${shop}_lat_upper_90`,
			`histogram_quantile(0.9, rate(${shop}_lat[$__rate_interval]))`},
		{"a percentile with a decimal", "statsd", `stats_timers_lat_upper_99_9`,
			`histogram_quantile(0.999, rate(lat[$__rate_interval]))`},
		{"a percentile below ten", "statsd", `stats_timers_lat_upper_5`,
			`histogram_quantile(0.05, rate(lat[$__rate_interval]))`},
		{"a timer's rate", "statsd", `stats_timers_lat_count_ps`, `histogram_count(rate(lat[$__rate_interval]))`},
		{"a timer's counts of an hour", "statsd", `sum_over_time(stats_timers_lat_count[1h])`,
			`histogram_count(increase(lat[1h]))`},
		{"dots", "statsd", `{"stats.timers.shop.lat.upper", "http.code"="200"}`,
			`histogram_quantile(1, rate(shop_lat{http_code="200"}[$__rate_interval]))`},

		{"aggregates of the Agent", "datadog", `lat_95percentile + lat_avg - lat_median * lat_max / lat_count`,
			`histogram_quantile(0.95, rate(lat[$__rate_interval])) + histogram_avg(rate(lat[$__rate_interval])) - ` +
				`histogram_quantile(0.5, rate(lat[$__rate_interval])) * histogram_quantile(1, rate(lat[$__rate_interval])) / ` +
				`histogram_count(rate(lat[$__rate_interval]))`},
		{"names with dots", "datadog", `sum({"api.requests", env="prod"})`, `sum(api_requests{env="prod"})`},
	} {
		if c.now == "" {
			c.now = c.was
		}
		o := dashboard.Options{From: c.from}
		if strings.Contains(c.was, "job") {
			o.DropLabels = []string{"job", "instance"}
		}
		if is, why := one(t, o, c.was, ""); is != c.now || why != nil {
			t.Errorf("%s: %s\n got %s\nwant %s\nnotes %q", c.why, c.was, is, c.now, why)
		}
	}
}

// A quantile keeps its label where an operation or a reader needs it. TestAnswers has all operations.
func TestQuantileLabel(t *testing.T) {
	const with = `label_replace(histogram_quantile(0.9, rate(lat[10m])), "quantile", "0.9", "", "")`
	const without = `histogram_quantile(0.9, rate(lat[10m]))`
	for _, c := range []struct{ expr, legend, becomes string }{
		{`X`, "{{ quantile }}", with},
		{`X`, "p90 of {{host}}", without},
		{`max(X)`, "{{quantile}}", without},
		{`max by (quantile) (X)`, "p90", with},
		{`max without (host) (X)`, "p90", without},
		{`X or lat{quantile="0.5"}`, "p90", with},
		{`X or hits`, "p90", with},
		{`X > on (host) hits`, "{{host}}", without},
		{`X > ignoring (quantile) group_left () hits`, "{{quantile}}", with},
		{`topk(3, X)`, "{{host}}", without},
		{`label_replace(X, "p", "p$1", "quantile", "0.(.*)")`, "{{p}}", with},
	} {
		expr := strings.ReplaceAll(c.expr, "X", `lat{quantile="0.9"}`)
		is, why := one(t, dashboard.Options{From: "statsd_exporter"}, expr, c.legend)
		if got := strings.Contains(is, with); got != (c.becomes == with) || !strings.Contains(is, c.becomes) || why != nil {
			t.Errorf("%s with the legend %q: got %s, want %s in it; notes %q", expr, c.legend, is, c.becomes, why)
		}
	}
}

// Grafana's own legend shows all labels. They tell the queries of one panel apart, and are columns of a table.
func TestQuantileLabelOfPanels(t *testing.T) {
	const lone = `{"refId":"A","expr":"lat{quantile=\"0.9\"}"`
	for targets, keeps := range map[string]bool{
		lone + `}`:                  false,
		lone + `,"format":"table"}`: true,
		lone + `},{"refId":"B","expr":"lat{quantile=\"0.5\"}"}`:                         true,
		lone + `,"legendFormat":"__auto"},{"refId":"B","expr":"lat{quantile=\"0.5\"}"}`: true,
		lone + `,"legendFormat":"p90"},{"refId":"B","expr":"lat{quantile=\"0.5\"}"}`:    false,
	} {
		c, err := dashboard.Convert([]byte(`{"panels":[{"title":"P","type":"graph","targets":[`+targets+`]},
			{"title":"Other","type":"graph","targets":[{"refId":"A","expr":"hits"}]}]}`),
			dashboard.Options{From: "statsd_exporter", SummaryAge: "10m"})
		if err != nil || strings.Contains(c.Queries[0].Is, "label_replace") != keeps {
			t.Errorf("%s: became %s, want the label quantile: %v; error %v", targets, c.Queries[0].Is, keeps, err)
		}
	}
}

// A summary without a matcher on quantile, or with a pattern, has the quantiles that the user names, or those that
// statsd_exporter has by default. The latter is in the notes.
func TestAllQuantiles(t *testing.T) {
	const assumed = "became lat with the quantiles 0.5, 0.9, 0.99"
	for _, c := range []struct {
		why, expr, legend string
		quantiles         []string // of the query that it becomes
		given             []string // --summary-quantiles
		note              string
	}{
		{"a grouping shows that it is a summary", `max by (quantile) (lat)`, "", dashboard.DefaultQuantiles, nil, assumed},
		{"a legend does", `lat`, "p{{quantile}}", dashboard.DefaultQuantiles, nil, assumed},
		{"another selector does", `lat and on (a) lat{quantile="0.9"}`, "", append(dashboard.DefaultQuantiles, "0.9"), nil,
			assumed},
		{"the user knows better", `max by (quantile) (lat)`, "", []string{"0.75", "1"}, []string{"0.75", "1"}, ""},
		{"a pattern", `lat{quantile=~"0.9.*"}`, "p", []string{"0.9", "0.99"}, nil, "became lat with the quantiles 0.9, 0.99"},
		{"all but one", `lat{quantile!="0.5"}`, "p", []string{"0.9", "0.99"}, nil, "became lat with the quantiles 0.9, 0.99"},
		{"two matchers", `lat{quantile!="0.5",quantile!~".*99"}`, "p", []string{"0.9"}, []string{"0.5", "0.9", "0.99"}, ""},
		{"none matches", `lat{quantile=~"1.*"}`, "p", nil, nil, "selects none of the quantiles of lat"},
		{"a variable in a pattern", `lat{quantile=~"0.$q"}`, "p", nil, nil, "whose value only Grafana knows"},
		{"names of two metrics tell nothing", `lat / on (a) hits`, "{{quantile}}", nil, nil, ""},
		{"a count has no quantiles", `sum by (quantile) (lat_count)`, "", nil, nil, "lat_count may be a counter"},
		{"a histogram already", `histogram_quantile(0.9, sum by (quantile) (rate(lat[5m])))`, "", nil, nil, ""},
	} {
		is, why := one(t, dashboard.Options{From: "statsd_exporter", SummaryQuantiles: c.given}, c.expr, c.legend)
		if got := strings.Count(is, "histogram_quantile("); c.quantiles == nil && is != c.expr ||
			c.quantiles != nil && got != len(c.quantiles) {
			t.Errorf("%s: %s became %s, want %d quantiles", c.why, c.expr, is, len(c.quantiles))
		}
		for _, q := range c.quantiles {
			if !strings.Contains(is, "histogram_quantile("+q+", rate(lat[10m]))") {
				t.Errorf("%s: %s became %s, without the quantile %s", c.why, c.expr, is, q)
			}
		}
		if all := strings.Join(why, "; "); !strings.Contains(all, c.note) || (c.note == "") != (all == "") {
			t.Errorf("%s: %s has the notes %q, want %q", c.why, c.expr, all, c.note)
		}
	}
}

// A name with _sum and _count is a timer, if no server says otherwise. A server cannot be asked for a name with a
// variable.
func TestSumAndCount(t *testing.T) {
	absent := func(string) dashboard.Kind { return dashboard.Absent }
	for _, c := range []struct {
		expr, becomes, note string
		kind                func(string) dashboard.Kind
	}{
		{`lat_sum / lat_count`, `histogram_sum(lat) / histogram_count(lat)`, "takes lat for a timer", nil},
		{`lat_sum / lat_count`, `lat_sum / lat_count`, "the server has neither", absent},
		{`${x}_sum / ${x}_count`, `histogram_sum(${x}) / histogram_count(${x})`, "takes ${x} for a timer", nil},
		{`lat_sum / lat_count + lat_bucket{le="1"}`, `lat_sum / lat_count + lat_bucket{le="1"}`, "", nil},
		{`other_sum / lat_count`, `other_sum / lat_count`, "may be a counter", nil},
	} {
		is, why := one(t, dashboard.Options{From: "statsd_exporter", Kind: c.kind}, c.expr, "mean")
		all := strings.Join(why, "; ")
		if is != c.becomes || !strings.Contains(all, c.note) || (c.note == "") != (all == "") {
			t.Errorf("%s became %s, want %s; notes %q, want %q", c.expr, is, c.becomes, all, c.note)
		}
	}
}

// histogram_quantile takes one number. A variable that may have several values stays.
func TestVariableOfSeveralQuantiles(t *testing.T) {
	for variable, stays := range map[string]bool{`"multi":true`: true, `"includeAll":true`: true, `"multi":false`: false} {
		c, err := dashboard.Convert([]byte(`{"panels":[{"title":"P","targets":[{"refId":"A",
			"expr":"max(lat{quantile=~\"$q\"})"}]}],"templating":{"list":[{"name":"q","type":"custom",`+variable+`}]}}`),
			dashboard.Options{From: "statsd_exporter", SummaryAge: "10m"})
		if err != nil || len(c.Notes) > 0 != stays || c.Changed() > 0 == stays {
			t.Errorf("%s: became %v, notes %v; error %v", variable, c.Queries, c.Notes, err)
		}
	}
}

// A computed value has no name, which Grafana would show as nothing.
func TestLegendOfTheName(t *testing.T) {
	for expr, legend := range map[string]string{`lat{quantile="0.9"}`: "{{__name__}} {{host}}",
		`max by (__name__) (lat{quantile="0.9"})`: "p90"} {
		if _, why := one(t, dashboard.Options{From: "statsd_exporter"}, expr, legend); len(why) != 1 ||
			!strings.Contains(why[0], "the name of the metric") {
			t.Errorf("%s with the legend %q: got the notes %q", expr, legend, why)
		}
	}
}

// A legend that shows a label which goes is in the notes, since Grafana would show nothing in its place.
func TestLegendOfARemovedLabel(t *testing.T) {
	for want, drop := range map[string][]string{
		"the legend shows the label instance, which series do not have here": {"job", "instance"},
		"uses the label instance of the scrape":                              nil,
	} {
		_, why := one(t, dashboard.Options{From: "statsd_exporter", DropLabels: drop}, `hits`, "{{code}} at {{ instance }}")
		if len(why) != 1 || !strings.Contains(why[0], want) {
			t.Errorf("without %q: got the notes %q, want %q", drop, why, want)
		}
	}
}

// Queries of VictoriaMetrics are converted, too. What only it knows is in the notes.
func TestVictoriaMetrics(t *testing.T) {
	const text = `{"panels":[{"title":"P","type":"timeseries","datasource":{"type":"victoriametrics-metrics-datasource",` +
		`"uid":"v"},"targets":[{"refId":"A","expr":"rate(hits[1m])"},{"refId":"B","expr":"rate(hits[5i])"}]}]}`
	c, err := dashboard.Convert([]byte(text), dashboard.Options{From: "statsd_exporter", SummaryAge: "10m"})
	if err != nil || c.Changed() != 1 || len(c.Queries) != 2 || len(c.Notes) != 1 ||
		!strings.Contains(c.Notes[0].Why, "is not PromQL") {
		t.Errorf("%+v: %v", c, err)
	}
}

// What cannot be converted stays as it is, and the note says why.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		from       dashboard.Source
		expr, want string
	}{
		{"statsd_exporter", `rate(lat_count[5m])`, "lat_count may be a counter, or belong to a timer"},
		{"statsd_exporter", `rate(lat{quantile="0.5"}[5m])`, "rate of lat, which is not a counter"},
		{"statsd_exporter", `sum_over_time(queue[1h])`, "sum_over_time adds up samples"},
		{"statsd_exporter", `changes(lat{quantile="0.5"}[1h])`, "changes compares each sample with the next"},
		{"statsd_exporter", `timestamp(lat{quantile="0.5"})`, "timestamp gives the time of a sample"},
		{"statsd_exporter", `mad_over_time(queue[1h])`, "uses mad_over_time, which is experimental"},
		{"statsd_exporter", `limitk(2, queue)`, "uses limitk, which is experimental"},
		{"statsd_exporter", `rate(hits[5m * 2])`, "is not PromQL"},
		{"statsd_exporter", `hits / fill(0) queue`, "is not PromQL"},
		{"statsd_exporter", `{__name__=~"lat.*"}`, "by a pattern"},
		{"statsd_exporter", `up == 0`, "up is a metric of the scrape"},
		{"statsd_exporter", `hits{job="statsd"}`, "uses the label job of the scrape"},
		{"statsd_exporter", `sum by (instance) (hits)`, "uses the label instance of the scrape"},
		{"statsd_exporter", `rate(statsd_exporter_lines_total[5m])`, "statsd_exporter itself"},
		{"statsd_exporter", `max_over_time(queue[10s])`, "has no answer from tiles of 1 min"},
		{"statsd_exporter", `$function(hits[5m])`, "is not PromQL"},
		{"statsd_exporter", `hits{$filter}`, "is not PromQL"},
		{"statsd", `stats_timers_lat_mean_90`, "a histogram has no mean_90"},
		{"statsd", `stats_hits`, "StatsD's own"},
		{"datadog", `lat_max`, "lat_max may be a metric, or an aggregate of the histogram lat"},
	} {
		is, why := one(t, dashboard.Options{From: c.from}, c.expr, "")
		if len(why) != 1 || !strings.Contains(why[0], c.want) {
			t.Errorf("%s: got the notes %q, want %q; it became %s", c.expr, why, c.want, is)
		}
	}
}

// A server knows which names belong to timers, and which of these have classic buckets.
func TestServerKnows(t *testing.T) {
	kinds := map[string]dashboard.Kind{"lat": dashboard.Native, "old_count": dashboard.Plain,
		"old_bucket": dashboard.Plain, "hits": dashboard.Plain, "x_max": dashboard.Plain,
		"api.lat": dashboard.Native}
	for _, c := range []struct {
		from           dashboard.Source
		was, now, note string
	}{
		{"statsd_exporter", `rate(lat_count[1m])`, `histogram_count(rate(lat[$__rate_interval]))`, ""},
		{"statsd_exporter", `increase(lat_sum[1m])`, `histogram_sum(increase(lat[1m] anchored))`, ""},
		{"statsd_exporter", `rate(old_count[5m])`, "", ""},
		{"statsd_exporter", `histogram_quantile(0.9, sum by (le, a) (rate(lat_bucket{b="c"}[5m])))`,
			`histogram_quantile(0.9, sum by (a) (rate(lat{b="c"}[5m])))`, ""},
		{"statsd_exporter", `histogram_quantile(0.9, sum(rate(lat_bucket[5m])) by (le))`,
			`histogram_quantile(0.9, sum(rate(lat[5m])))`, ""},
		{"statsd_exporter", `histogram_quantile(0.9, rate(lat_bucket[1m]))`,
			`histogram_quantile(0.9, rate(lat[$__rate_interval]))`, ""},
		{"statsd_exporter", `histogram_quantile(0.9, avg without (a) (rate(lat_bucket[5m])))`,
			`histogram_quantile(0.9, avg without (a) (rate(lat[5m])))`, ""},
		{"statsd_exporter", `histogram_quantile(0.9, sum by (le) (lat_bucket))`, `histogram_quantile(0.9, sum(lat))`, ""},
		{"statsd_exporter", `sum by (le) (rate(lat_bucket[5m]))`, "", "uses the buckets of lat_bucket for other things"},
		{"statsd_exporter", `histogram_quantile(0.9, rate(lat_bucket{le!="+Inf"}[5m]))`, "", "selects some of the buckets"},
		{"statsd_exporter", `lat_bucket{le="0.5"}`, "", "selects some of the buckets"},
		{"statsd_exporter", `max(lat)`, `max((` +
			`label_replace(histogram_quantile(0.5, rate(lat[10m])), "quantile", "0.5", "", "") ` +
			`or label_replace(histogram_quantile(0.9, rate(lat[10m])), "quantile", "0.9", "", "") ` +
			`or label_replace(histogram_quantile(0.99, rate(lat[10m])), "quantile", "0.99", "", "")))`, "became lat with"},
		{"statsd_exporter", `histogram_avg(rate(lat[5m]))`, "", ""},
		{"statsd_exporter", `gone{quantile="0.5"}`, "", "has no sample of the last hour"},
		{"statsd_exporter", `rate(gone[5m])`, "", "has no sample of the last hour"},
		{"statsd_exporter", `rate(gone_count[5m])`, "", "neither gone_count nor a timer gone"},
		{"statsd_exporter", `{"api.lat", quantile="0.5", a="b"}`,
			`histogram_quantile(0.5, rate({"api.lat", a="b"}[10m]))`, ""},
		{"datadog", `lat_max`, `histogram_quantile(1, rate(lat[$__rate_interval]))`, ""},
		{"datadog", `x_max`, "", ""},
		{"datadog", `rate(hits_total[5m])`, `rate(hits[5m])`, ""},
		{"statsd", `stats_gauges_gone`, "", "asks for gone"},
	} {
		o := dashboard.Options{From: c.from, Kind: func(name string) dashboard.Kind {
			if kinds[name] == dashboard.Unknown {
				return dashboard.Absent
			}
			return kinds[name]
		}}
		if c.now == "" {
			c.now = c.was
		}
		is, why := one(t, o, c.was, "")
		if all := strings.Join(why, "; "); is != c.now || !strings.Contains(all, c.note) || (c.note == "") != (all == "") {
			t.Errorf("%s: %s\n got %s\nwant %s\nnotes %q, want %q", c.from, c.was, is, c.now, why, c.note)
		}
	}
}

// A server has no answer for an empty name, and none that matters for the name of a label.
func TestServerIsAskedForMetrics(t *testing.T) {
	var asked []string
	o := dashboard.Options{From: dashboard.Datadog, Kind: func(name string) dashboard.Kind {
		asked = append(asked, name)
		return dashboard.Plain
	}}
	const expr = `sum by (env) (rate(hits{env="prod", "http.code"="200"}[5m]))`
	if _, why := one(t, o, expr, ""); why != nil || !slices.Equal(asked, []string{"hits"}) {
		t.Errorf("%s: the server was asked for %q, want hits; notes %q", expr, asked, why)
	}
}

// Whole dashboards: exports, old ones with rows, and the form of Grafana 12. Only strings with changed queries change.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".freshet.json") })
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dashboard.Convert(text, dashboard.Options{From: dashboard.StatsDExporter, SummaryAge: "10m",
			DropLabels: []string{"job"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var notes strings.Builder
		for _, n := range c.Notes {
			fmt.Fprintf(&notes, "%s: %s\n    %s\n    To do: %s\n", n.Place, n.Why, n.Expr, n.Do)
		}
		base := strings.TrimSuffix(name, ".json")
		compare(t, base+".freshet.json", c.Text)
		compare(t, base+".notes.txt", []byte(notes.String()))
		was, is := bytes.Split(text, []byte("\n")), bytes.Split(c.Text, []byte("\n"))
		changed := 0
		for i := range was {
			if len(was) == len(is) && !bytes.Equal(was[i], is[i]) {
				changed++
			}
		}
		if len(was) != len(is) || changed > 2*c.Changed() || changed == 0 {
			t.Errorf("%s: %d of %d lines changed for %d queries, now %d lines", name, changed, len(was), c.Changed(), len(is))
		}
		again, err := dashboard.Convert(c.Text, dashboard.Options{From: dashboard.StatsDExporter, SummaryAge: "10m"})
		if err != nil || again.Changed() > 0 {
			t.Errorf("%s: a second conversion changes %v; error %v", name, again.Queries, err)
		}
	}
}

// Variables in a query get the values that the dashboard was saved with.
func TestFilled(t *testing.T) {
	c, err := dashboard.Convert([]byte(`{"templating": {"list": [
		{"name": "one", "current": {"value": "a"}}, {"name": "several", "current": {"value": ["a", "b"]}},
		{"name": "all", "current": {"value": "$__all"}}, {"name": "own", "allValue": "x.*", "current": {"value": ["$__all"]}}
	]}}`), dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := c.Filled(`label_replace(rate(x{a="$one",b=~"${several:regex}",c=~"[[all]]",d=~"$own",e=~"$new"}` +
		`[$__rate_interval]), "f", "$1${2}", "a", "(.)(.*)")`)
	if want := `label_replace(rate(x{a="a",b=~"(a|b)",c=~".*",d=~"x.*",e=~".*"}[40s]), "f", "$1${2}", "a", "(.)(.*)")`; got !=
		want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs; rewrite it with -update (%v)\n%s", name, err, got)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"panels\": [,]}": "line 2: not JSON", "[1]": "not a dashboard", "": "not JSON", "{} {}": "line 1: not JSON",
		strings.Repeat("[", 20_000): "not JSON",
	} {
		_, err := dashboard.Convert([]byte(text), dashboard.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got the error %v, want %s", text, err, want)
		}
	}
}

// FuzzConvert checks that a converted dashboard is JSON, and that each query that changed is PromQL.
func FuzzConvert(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(text, byte(0))
		}
	}
	for _, expr := range []string{`a{quantile=~"0.5|$x"}[1m]`, `sum(rate(a_bucket{b="}"}[[[w]]])) by (le, ${x})`,
		`stats_timers_$x_upper_9`, `"$x" # [[`, `{"a.b", "c.d"=~'e'} offset $y`, `increase({__name__="a"}[1s])`} {
		text, err := json.Marshal(map[string]any{"refId": "A", "expr": expr, "type": "query", "name": "x",
			"query": "label_values(" + expr + ", quantile)"})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, byte(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, from byte) {
		sources := dashboard.Sources()
		c, err := dashboard.Convert(text, dashboard.Options{From: sources[int(from)%len(sources)], SummaryAge: "10m",
			DropLabels: []string{"job"}, Kind: kindOf(from)})
		if err != nil {
			return
		}
		if !json.Valid(c.Text) {
			t.Fatalf("%q became %q, which is not JSON", text, c.Text)
		}
		if c.Changed() == 0 && !bytes.Equal(text, c.Text) {
			t.Fatalf("%q became %q without a change", text, c.Text)
		}
	})
}

// kindOf is a server for which the bytes of names decide.
func kindOf(from byte) func(string) dashboard.Kind {
	if from&8 == 0 {
		return nil
	}
	return func(name string) dashboard.Kind { return dashboard.Kind(1 + (len(name)+int(from))%3) }
}
