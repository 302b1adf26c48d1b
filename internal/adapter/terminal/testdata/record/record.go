// Command record writes the answers that the tests of this package and of freshet query
// read, as Prometheus' own engine and encoder give them. Run it from
// internal/adapter/terminal:
//
//	go run ./testdata/record
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

const series = `
load 15s
  page_views{host="web-1",route="/cart"} 0+7x240
  page_views{host="web-2",route="/cart"} 0+3x120 _x60 540+9x60
  page_views{host="web-1",route="/"}     0+30x240
  queue_length{queue="mail"}             5+1x240
  queue_length{queue="mail",zone="a"}    7+0x240
  odd{text="two\nlines and \x1b[31mred"} 1+0x240
  tiny                                   -0.00001+0.0000001x240
  vast                                   -1.7e308 1.7e308x239
  parts{n="0"} 0x240
  parts{n="1"} 1x240
  parts{n="2"} 2x240
  parts{n="3"} 3x240
  parts{n="4"} 4x240
  parts{n="5"} 5x240
  parts{n="6"} 6x240
  parts{n="7"} 7x240
  parts{n="8"} 8x240
  parts{n="9"} 9x240
  request_seconds{route="/cart"} {{schema:1 sum:0 count:0}}+{{schema:1 sum:41.5 count:30 z_bucket:1 z_bucket_w:0.001 offset:-6 buckets:[1 3 7 9 5 3 1]}}x240
  balance {{schema:0 sum:-4 count:12 z_bucket:2 z_bucket_w:0.001 buckets:[3 1] n_buckets:[2 3 1]}}x240
  fine {{schema:3 sum:90 count:90 buckets:[1 1 2 2 3 3 4 4 5 5 6 6 5 5 4 4 3 3 2 2 1 1 2 2 3 3 2 2 1 1 1 1]}}x240
`

func main() {
	storage := promqltest.LoadedStorage(fatal{}, series)
	defer storage.Close()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
	end := time.Unix(3600, 0)
	for name, expr := range map[string]string{
		"columns":    `page_views`,
		"sum":        `sum(page_views)`,
		"mixed":      `queue_length`,
		"odd":        `odd`,
		"none":       `missing`,
		"scalar":     `42 / 5`,
		"string":     `"text"`,
		"selector":   `page_views{host="web-1",route="/"}[1m]`,
		"histogram":  `increase(request_seconds[5m])`,
		"negative":   `balance`,
		"fine":       `fine`,
		"info":       `rate(queue_length{zone="a"}[5m])`,
		"warning":    `histogram_quantile(2, page_views)`,
		"histograms": `balance[30s]`,
		"p50":        `histogram_quantile(0.5, fine)`,
		"p99":        `histogram_quantile(0.99, fine)`,
		"balance50":  `histogram_quantile(0.5, balance)`,
	} {
		query, err := engine.NewInstantQuery(context.Background(), storage, nil, expr, end)
		write(name, query, err)
	}
	for name, expr := range map[string]string{
		"range-one":        `sum(rate(page_views[1m]))`,
		"range-many":       `sum by (host) (page_views)`,
		"range-gap":        `page_views{host="web-2"}`,
		"range-flat":       `queue_length{zone="a"}`,
		"range-tiny":       `tiny`,
		"range-vast":       `vast`,
		"range-parts":      `parts`,
		"range-histograms": `balance`,
		"range-none":       `missing`,
	} {
		query, err := engine.NewRangeQuery(context.Background(), storage, nil, expr, end.Add(-time.Hour), end, time.Minute)
		write(name, query, err)
	}
}

func write(name string, query promql.Query, err error) {
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	result := query.Exec(context.Background())
	if result.Err != nil {
		log.Fatal(name, ": ", result.Err)
	}
	warnings, infos := result.Warnings.AsStrings(query.String(), 10, 10)
	text, err := v1.JSONCodec{}.Encode(&v1.Response{
		Status: "success", Warnings: warnings, Infos: infos,
		Data: &v1.QueryData{ResultType: result.Value.Type(), Result: result.Value},
	})
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	if err := os.WriteFile(filepath.Join("testdata", "answers", name+".json"), append(text, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}

// fatal implements the methods of testing.TB that loading the storage needs.
type fatal struct{ testing.TB }

func (fatal) Helper()                           {}
func (fatal) Cleanup(func())                    {} // main closes the storage
func (fatal) FailNow()                          { os.Exit(1) }
func (fatal) Errorf(format string, args ...any) { log.Printf(format, args...) }
