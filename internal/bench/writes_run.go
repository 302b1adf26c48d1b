package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/remoteload"
)

// writeBench is a measurement of one server by remote write.
type writeBench struct {
	load     remoteload.Config
	rate     float64 // samples a second; 0 for as fast as possible
	rounds   int     // 0 for as many as fit into duration
	duration time.Duration
	live     bool

	writer     loadgen.WriterConfig
	server     apiclient.Server // the server to measure; if it has no address, bench starts one
	tenant     string
	serveFlags []string // flags for a server that bench starts

	asJSON bool
	view   terminal.View
	line   *terminal.Line
}

func (b *writeBench) interval() time.Duration {
	return time.Duration(b.load.Interval) * time.Millisecond
}

// writeRun is the result of a run: the sent samples, their fate and their cost. The names of the
// fields in JSON never change, because other programs read them.
type writeRun struct {
	Rounds         int    `json:"rounds"` // rounds that were begun
	SentRequests   uint64 `json:"sent_requests"`
	SentSamples    uint64 `json:"sent_samples"`
	SentSeries     uint64 `json:"sent_series"`
	SentBytes      uint64 `json:"sent_bytes"` // bytes of the compressed requests
	SentRawBytes   uint64 `json:"sent_bytes_decompressed"`
	WrittenSamples uint64 `json:"acknowledged_samples"`
	Refused        string `json:"refused,omitempty"` // the receiver's answer for the first samples that it did not write
	Retries        uint64 `json:"retries"`
	FoundSamples   uint64 `json:"found_samples"` // the result of a query afterwards
	FoundSeries    uint64 `json:"found_series"`

	Cost writeCost `json:"measured"`
}

// writeCost is the receiver's cost in all rounds except the first, in which all series are new. A
// comment marks fields that cover other rounds.
type writeCost struct {
	Seconds           float64 `json:"seconds"`
	SamplesPerSecond  float64 `json:"acknowledged_samples_per_second"`
	CPUSeconds        float64 `json:"cpu_seconds_per_million_samples"`
	CPUUserSeconds    float64 `json:"cpu_user_seconds_per_million_samples"`
	CPUSystemSeconds  float64 `json:"cpu_system_seconds_per_million_samples"`
	NewSeriesMicros   float64 `json:"cpu_us_per_new_series"` // cost in all rounds, without the cost of the series' sample
	CPUPercent        float64 `json:"cpu_percent_of_a_core"`
	GCPercent         float64 `json:"gc_percent_of_cpu"`
	Allocations       float64 `json:"allocations_per_sample"`
	AllocatedBytes    float64 `json:"allocated_bytes_per_sample"`
	P50               float64 `json:"acknowledged_p50_ms"`
	P90               float64 `json:"acknowledged_p90_ms"`
	P99               float64 `json:"acknowledged_p99_ms"`
	Max               float64 `json:"acknowledged_max_ms"`
	ResidentPerSeries float64 `json:"resident_bytes_per_series"` // growth from before the first round to the end
	ResidentBytes     float64 `json:"resident_bytes"`
	HeapLiveBytes     float64 `json:"heap_live_bytes"`
	SenderCPUSeconds  float64 `json:"sender_cpu_seconds_per_million_samples"`
}

// aim sets the headers, TLS and tenant for requests to the server.
func (b *writeBench) aim(server apiclient.Server) error {
	b.writer.URL, b.writer.Header = strings.TrimSuffix(apiclient.WithScheme(server.Address), "/")+"/api/v1/write",
		http.Header{}
	token, err := server.Token()
	if err != nil {
		return err
	}
	if token != "" {
		b.writer.Header.Set("Authorization", "Bearer "+token)
	}
	if b.tenant != "" {
		b.writer.Header.Set("X-Scope-OrgID", b.tenant)
	}
	client, err := server.Client()
	if err != nil {
		return err
	}
	if transport, ok := client.Transport.(*http.Transport); ok {
		b.writer.TLS = transport.TLSClientConfig
	}
	return nil
}

// writeMeasurement is one run of a load against a server.
type writeMeasurement struct {
	*writeBench
	server apiclient.Server
	sender *loadgen.Writer
}

func (m *writeMeasurement) run(ctx context.Context) (r writeRun, err error) {
	before, err := m.figures(ctx)
	if err != nil {
		return r, err
	}
	first, err := m.send(ctx, "first round", loadgen.WriterPace{Rate: m.rate, Rounds: 1})
	if err != nil {
		return r, err
	}
	introduced, err := m.figures(ctx)
	if err != nil {
		return r, err
	}
	rest, err := m.send(ctx, "measuring", loadgen.WriterPace{Rate: m.rate, Rounds: m.rounds - 1, Duration: m.duration})
	if err != nil {
		return r, err
	}
	after, err := m.figures(ctx)
	if err != nil {
		return r, err
	}
	if before.PID != after.PID {
		return r, errors.New("the receiver was restarted during the measurement: its figures began at zero again")
	}
	if rest.Sent.Samples == 0 {
		return r, errors.New("nothing was sent after the first round: choose a longer --duration or a higher --rate")
	}
	r = newWriteRun(m.sender.Rounds(), first, rest)
	r.Cost = writeCostOf(first, rest, before, introduced, after)
	m.line.Draw("querying what is stored")
	return r, m.prove(ctx, &r)
}

func newWriteRun(rounds int, runs ...loadgen.WriterResult) (r writeRun) {
	r.Rounds = rounds
	for _, one := range runs {
		r.SentRequests += one.Sent.Requests
		r.SentSamples += one.Sent.Samples
		r.SentSeries += one.Sent.NewSeries
		r.SentBytes += one.Sent.Bytes
		r.SentRawBytes += one.Sent.RawBytes
		r.WrittenSamples += one.Written
		r.Retries += one.Retries
		if r.Refused == "" {
			r.Refused = one.Refused
		}
	}
	return r
}

// send continues the load and shows its progress.
func (m *writeMeasurement) send(ctx context.Context, doing string,
	pace loadgen.WriterPace) (loadgen.WriterResult, error) {
	ended := make(chan struct{})
	var result loadgen.WriterResult
	var err error
	go func() {
		defer close(ended)
		result, err = m.sender.Run(ctx, pace)
	}()
	of := "" // the number of rounds as text, if the load has a set number
	if m.duration == 0 {
		of = fmt.Sprintf(" of %d", m.rounds)
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); ; {
		select {
		case <-ticker.C:
			n := m.sender.Progress().Samples
			m.line.Draw(fmt.Sprintf("%s: round %d%s, %s samples acknowledged, %s a second", doing, m.sender.Rounds(), of,
				terminal.Thousands(n), wholeRate(float64(n)/time.Since(begun).Seconds())))
		case <-ended:
			return result, err
		}
	}
}

// writeCostOf returns the receiver's cost from its figures at three moments: before the first round,
// after the first round, and at the end.
func writeCostOf(first, rest loadgen.WriterResult, before, introduced, after answer.Process) writeCost {
	cpu := func(a, b answer.Process) float64 {
		return b.CPUUserSeconds - a.CPUUserSeconds + b.CPUSystemSeconds - a.CPUSystemSeconds
	}
	samples := float64(rest.Sent.Samples)
	known := cpu(introduced, after)
	millis := func(quantile float64) float64 { return milliseconds(rest.Latency.Quantile(quantile)) }
	return writeCost{
		Seconds: rest.Elapsed.Seconds(), SamplesPerSecond: float64(rest.Written) / rest.Elapsed.Seconds(),
		CPUSeconds:       known * 1e6 / samples,
		CPUUserSeconds:   (after.CPUUserSeconds - introduced.CPUUserSeconds) * 1e6 / samples,
		CPUSystemSeconds: (after.CPUSystemSeconds - introduced.CPUSystemSeconds) * 1e6 / samples,
		NewSeriesMicros:  1e6 * costOfNew(first.Sent, cpu(before, introduced), rest.Sent, known),
		CPUPercent:       100 * known / rest.Elapsed.Seconds(),
		GCPercent:        100 * (after.GCCPUSeconds - introduced.GCCPUSeconds) / max(known, 1e-6),
		Allocations:      float64(after.AllocatedObjectsTotal-introduced.AllocatedObjectsTotal) / samples,
		AllocatedBytes:   float64(after.AllocatedBytesTotal-introduced.AllocatedBytesTotal) / samples,
		P50:              millis(.5), P90: millis(.9), P99: millis(.99), Max: milliseconds(rest.Latency.Max()),
		ResidentPerSeries: (float64(after.ResidentBytes) - float64(before.ResidentBytes)) / float64(first.Sent.NewSeries+
			rest.Sent.NewSeries),
		ResidentBytes: float64(after.ResidentBytes), HeapLiveBytes: float64(after.HeapLiveBytes),
		SenderCPUSeconds: rest.CPU.Seconds() * 1e6 / samples,
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// costOfNew returns the cost of a new series in seconds, without the cost of its sample. Two parts of
// a load with different shares of new series give two equations.
func costOfNew(first remoteload.Totals, firstCost float64, rest remoteload.Totals, restCost float64) float64 {
	of := func(t remoteload.Totals) (share, perSample float64) {
		return float64(t.NewSeries) / float64(t.Samples), 1 / float64(t.Samples)
	}
	share, one := of(first)
	restShare, restOne := of(rest)
	if share == restShare {
		return 0 // with equal shares the two equations have no solution
	}
	return (firstCost*one - restCost*restOne) / (share - restShare)
}

// prove queries the server for the acknowledged samples. The server must have all of these samples
// and no others.
func (m *writeMeasurement) prove(ctx context.Context, r *writeRun) error {
	selector := fmt.Sprintf("job=%q", m.load.Job())
	for _, name := range remoteload.Names() { // one by one: count_over_time drops the name
		counts := fmt.Sprintf("count_over_time(%s{%s}[%dms])", name, selector, int64(r.Rounds)*m.load.Interval)
		samples, err := m.count(ctx, "sum("+counts+")", r.Rounds)
		if err != nil {
			return err
		}
		series, err := m.count(ctx, "count("+counts+")", r.Rounds)
		if err != nil {
			return err
		}
		r.FoundSamples += samples
		r.FoundSeries += series
	}
	if r.FoundSamples != r.WrittenSamples {
		return fmt.Errorf("%s samples were acknowledged, but %s are found by count_over_time({%s}[...])",
			terminal.Thousands(r.WrittenSamples), terminal.Thousands(r.FoundSamples), selector)
	}
	if r.WrittenSamples == r.SentSamples && r.FoundSeries != r.SentSeries {
		return fmt.Errorf("all samples of %s series were acknowledged, but %s series are found by count_over_time({%s}[...])",
			terminal.Thousands(r.SentSeries), terminal.Thousands(r.FoundSeries), selector)
	}
	return nil
}

// count returns the value of an expression at the time of the last of the given rounds.
func (m *writeMeasurement) count(ctx context.Context, expr string, rounds int) (uint64, error) {
	at := float64(m.load.Time(rounds-1)) / 1000
	var found struct {
		Result []struct{ Value [2]any }
	}
	err := m.ask(ctx, "/api/v1/query", url.Values{"query": {expr}, "time": {strconv.FormatFloat(at, 'f', 3, 64)}}, &found)
	if err != nil {
		return 0, fmt.Errorf("query %s: %w", expr, err)
	}
	if len(found.Result) == 0 {
		return 0, nil
	}
	text, _ := found.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("query %s: answered %.80q, which is not a number", expr, text)
	}
	return uint64(v), nil
}

func (m *writeMeasurement) figures(ctx context.Context) (p answer.Process, err error) {
	return p, m.ask(ctx, "/api/v1/status/process", nil, &p)
}

// ask sends a request as the tenant to which the load is written.
func (m *writeMeasurement) ask(ctx context.Context, path string, params url.Values, data any) error {
	ctx, cancel := context.WithTimeout(ctx, apiclient.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(m.writer.URL, "/api/v1/write")+path+"?"+params.Encode(), nil)
	if err != nil {
		return err
	}
	request.Header = m.writer.Header.Clone()
	client, err := m.server.Client()
	if err != nil {
		return err
	}
	resp, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w; is `freshet serve` running there?", m.server, err)
	}
	_, a, err := m.server.Read(resp)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.Data, data); err != nil {
		return fmt.Errorf("read the answer of %s to %s: %w", m.server, path, err)
	}
	return nil
}
