package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func field(number protowire.Number, content ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(content...))
}

// in(content, numbers...) wraps content in fields with the given numbers. The first number is of the
// innermost field.
func in(content []byte, numbers ...protowire.Number) []byte {
	for _, n := range numbers {
		content = field(n, content)
	}
	return content
}

func times(n int, b []byte) []byte { return bytes.Repeat(b, n) }

// Decoding takes at most the memory that Size returned. The bodies are the worst cases: empty
// messages only, or numbers of one byte only.
func TestSizeIsWhatDecodingTakes(t *testing.T) {
	const n = 50_000
	toMetrics := []protowire.Number{2, 2, 1} // Metric, ScopeMetrics, ResourceMetrics
	points := func(kind protowire.Number, point []byte) []byte {
		return in(times(n, field(1, point)), append([]protowire.Number{kind}, toMetrics...)...)
	}
	inPoint := func(kind protowire.Number, content []byte) []byte {
		return in(content, append([]protowire.Number{1, kind}, toMetrics...)...)
	}
	for name, body := range map[string][]byte{
		"resources":               times(n, field(1)),
		"resource attributes":     in(times(n, field(1)), 1, 1),
		"entities":                in(times(n, field(3)), 1, 1),
		"keys of entities":        in(times(n, field(3)), 3, 1, 1),
		"scopes":                  in(times(n, field(2)), 1),
		"scopes as once":          in(times(n, field(1000)), 1),
		"metrics":                 in(times(n, field(2)), 2, 1),
		"metadata of metrics":     in(times(n, field(12)), toMetrics...),
		"gauges in one metric":    in(times(n, field(5)), toMetrics...),
		"numbers":                 points(5, nil),
		"numbers with a value":    points(7, append(protowire.AppendTag(nil, 4, protowire.Fixed64Type), make([]byte, 8)...)),
		"explicit histograms":     points(9, nil),
		"exponential histograms":  points(10, nil),
		"summaries":               points(11, nil),
		"quantiles":               inPoint(11, times(n, field(6))),
		"attributes":              inPoint(5, times(n, field(7))),
		"attributes with a value": inPoint(5, times(n, field(7, field(2, field(1))))),
		"exemplars":               inPoint(7, times(n, field(5))),
		"exemplars with a value": inPoint(7,
			times(n, field(5, append(protowire.AppendTag(nil, 3, protowire.Fixed64Type), make([]byte, 8)...)))),
		"buckets, packed":     inPoint(10, field(8, field(2, make([]byte, n)))),
		"buckets, each apart": inPoint(10, field(8, times(n, []byte{2 << 3, 0}))),
		"bounds":              inPoint(9, field(7, make([]byte, 8*n))),
		"values in a list":    inPoint(5, field(7, field(2, field(5, times(n, field(1)))))),
		"pairs in a list":     inPoint(5, field(7, field(2, field(6, times(n, field(1)))))),
		"lists":               inPoint(5, field(7, field(2, field(5, times(n, field(1, field(5))))))),
		"a long text":         inPoint(5, field(7, field(1, make([]byte, n)))),
	} {
		compareSize(t, name, body, Protobuf)
	}
	for name, item := range map[string]string{
		"resourceMetrics":      `{"resourceMetrics":[%s{}]}`,
		"numbers":              `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[%s{}]}}]}]}]}`,
		"exponential":          `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"exponentialHistogram":{"dataPoints":[%s{}]}}]}]}]}`,
		"attributes of points": `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[{"attributes":[%s{}]}]}}]}]}]}`,
	} {
		compareSize(t, "JSON "+name, fmt.Appendf(nil, item, strings.Repeat("{},", n)), JSON)
	}
	compareSize(t, "JSON numbers",
		fmt.Appendf(nil,
			`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"bucketCounts":[%s0]}]}}]}]}]}`,
			strings.Repeat("0,", n)), JSON)
}

func compareSize(t *testing.T, name string, body []byte, form Form) {
	t.Helper()
	size, err := Size(body, form)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m, err := Decode(body, form)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if held > int64(size)+4096 {
		t.Errorf("%s: decoding a body of %d bytes takes %d, but Size returned %d", name, len(body), held, size)
	}
	t.Logf("%-25s a body of %8d bytes takes %9d; Size says %.1f times that",
		name, len(body), held, float64(size)/float64(held))
	runtime.KeepAlive(m)
}

// The decoder calls itself for each level of a nested value. So without the limit a request of 30
// MiB would end the process.
func TestDeepValuesAreRefused(t *testing.T) {
	var value []byte
	for len(value) < 1<<16 {
		value = field(5, field(1, value))
	}
	if _, err := Size(in(value, 2, 1, 1, 1), Protobuf); !errors.Is(err, ErrTooDeep) {
		t.Error(err)
	}
	deep := `{"resourceMetrics":[{"resource":{"attributes":[{"key":"a","value":` +
		strings.Repeat(`{"arrayValue":{"values":[`, 1000) + strings.Repeat("]}}", 1000) + "}]}}]}"
	if _, err := Size([]byte(deep), JSON); !errors.Is(err, ErrTooDeep) {
		t.Error(err)
	}
	flat := `{"resourceMetrics":[{"resource":{"attributes":[{"key":"a","value":{"stringValue":"` +
		strings.Repeat(`[{\"`, 1000) + `"}}]}}]}`
	if _, err := Size([]byte(flat), JSON); err != nil {
		t.Errorf("brackets in a text: %v", err)
	}
	if _, err := Size(field(1)[:1], Protobuf); err == nil || errors.Is(err, ErrTooDeep) {
		t.Error(err)
	}
}
