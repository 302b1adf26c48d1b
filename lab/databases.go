package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	peerstsdb "github.com/freshet-io/freshet/lab/peers-tsdb"
	"github.com/freshet-io/freshet/lab/report"
)

const (
	writeConnections = 2
	quickWriteRuns   = 2

	// afterwards is how long the lab waits before it reads a database's CPU time, so that the cost
	// includes work that the database has postponed.
	afterwards = 500 * time.Millisecond

	// manySeries is large enough to show in the memory of a process, which varies by 20 MB for other
	// reasons.
	manySeries = 100_000

	// writeEnds is the age of the last samples when they are written. Some databases hide the last
	// seconds from queries.
	writeEnds = time.Minute
)

// writeWorkload is a load of remote write under which databases are compared.
type writeWorkload struct {
	report.WriteLoad
	version int
	takes   time.Duration // the approximate time for the first peer, which is the slowest
}

// writeWorkloads returns the loads whose results are on the page. Each lasts for several garbage
// collections. Five runs of all loads take about five minutes.
func writeWorkloads() []writeWorkload {
	return []writeWorkload{
		{WriteLoad: report.WriteLoad{ID: "v1-100k", Name: "Remote write 1.0, 100,000 series, 2,000 samples a request",
			Series: 100_000, Batch: 2000, Rounds: 30,
			Goals: report.WriteGoals{Seconds: .85, Ratio: .30, New: 5, NewAim: 4, Resident: 1050, ResidentAim: 900}},
			version: 1, takes: 8 * time.Second},
		{WriteLoad: report.WriteLoad{ID: "v2-100k", Name: "Remote write 2.0, 100,000 series, 2,000 samples a request",
			Series: 100_000, Batch: 2000, Rounds: 30,
			Goals: report.WriteGoals{Seconds: .75, Ratio: .46}}, version: 2, takes: 6 * time.Second},
		{WriteLoad: report.WriteLoad{ID: "v1-10k", Name: "Remote write 1.0, 10,000 series, 100 samples a request",
			Series: 10_000, Batch: 100, Rounds: 80,
			Goals: report.WriteGoals{Seconds: 1.0, Aim: .75, Ratio: .30, New: 5, NewAim: 4}},
			version: 1, takes: 5 * time.Second},
		{WriteLoad: report.WriteLoad{ID: "v1-late",
			Name: "Remote write 1.0, 100,000 series, 2,000 samples a request, late", Late: true,
			Series: 100_000, Batch: 2000, Rounds: 40,
			Goals: report.WriteGoals{Seconds: 2.0, Aim: 1.0}}, version: 1, takes: 30 * time.Second},
	}
}

// config returns a configuration for requests whose last samples are a moment old.
func (w writeWorkload) config() remoteload.Config {
	c := remoteload.Standard()
	c.Version, c.Series, c.Batch = w.version, w.Series, w.Batch
	c.Begin = time.Now().Add(-writeEnds).UnixMilli() - int64(w.Rounds)*c.Interval
	return c
}

// before returns a configuration for the series of another load, with a sample before each of its samples.
func before(c remoteload.Config) remoteload.Config {
	c.Name = c.Job()
	c.Begin -= c.Interval / 2
	return c
}

// database is a program that accepts remote write.
type database struct {
	name     string
	group    report.Group
	version2 bool // understands version 2.0
	native   bool // keeps native histograms
	start    func(ctx context.Context, dir string) (*runningDatabase, error)
}

// runningDatabase is a running database.
type runningDatabase struct {
	pid   int
	url   string                      // address of its API
	flush func(context.Context) error // returns once queries find all acknowledged samples
	stop  func() error

	probed func(context.Context) (probes, error) // results of Freshet's own probes; nil for other databases
}

// databases returns the peers, of which the first is the base of comparison, and then Freshet with the
// given settings.
func (l *lab) databases(settings ...string) (all []database) {
	for _, p := range l.tsdbs {
		all = append(all, peerDatabase(p))
	}
	return append(all, l.ours(settings...))
}

func peerDatabase(p peerstsdb.Peer) database {
	return database{name: p.Name, group: report.Peer, version2: p.Version2, native: p.Native,
		start: func(ctx context.Context, dir string) (*runningDatabase, error) {
			r, err := p.Start(ctx, peersDir, dir)
			if err != nil {
				return nil, err
			}
			return &runningDatabase{pid: r.PID, url: r.URL, flush: r.Flush, stop: r.Stop}, nil
		}}
}

// ours returns Freshet with the given settings.
func (l *lab) ours(settings ...string) database {
	return database{name: "Freshet", group: report.Ours, version2: true, native: true,
		start: func(ctx context.Context, dir string) (*runningDatabase, error) {
			f, err := startFreshet(ctx, l.freshet, dir, nil, append([]string{"--role", "all"}, settings...)...)
			if err != nil {
				return nil, err
			}
			return &runningDatabase{pid: f.cmd.Process.Pid, url: "http://" + f.HTTP,
				flush: func(context.Context) error { return nil }, stop: f.stop, probed: f.probed}, nil
		}}
}

// buildDatabases builds the peers that have not been built yet, or only Prometheus. It leaves out peers
// that cannot be built.
func (l *lab) buildDatabases(ctx context.Context, onlyPrometheus bool) error {
	var steps []step
	for _, p := range peerstsdb.All() {
		if onlyPrometheus && !p.Rules {
			continue
		}
		do := func(ctx context.Context) error {
			var said bytes.Buffer
			if !p.Built(peersDir) {
				if err := p.Build(ctx, peersDir, &said); err != nil {
					if ctx.Err() == nil {
						l.leaveOut("%v: %s", err, lastLine(said.String()))
					}
					return ctx.Err()
				}
			}
			l.tsdbs = append(l.tsdbs, p)
			return nil
		}
		if p.Built(peersDir) {
			if err := do(ctx); err != nil {
				return err
			}
			continue
		}
		steps = append(steps,
			step{
				what:  fmt.Sprintf("build %s %s, only this time; -no-peers leaves it out", p.Name, p.Version),
				takes: 3 * time.Minute,
				do:    do,
			})
	}
	err := l.progress.run(ctx, steps)
	// The peers are in the order in which they were built. Put them into the order of the page.
	slices.SortStableFunc(l.tsdbs, func(a, b peerstsdb.Peer) int { return indexOf(a) - indexOf(b) })
	return err
}

func indexOf(p peerstsdb.Peer) int {
	return slices.IndexFunc(peerstsdb.All(), func(q peerstsdb.Peer) bool { return q.Name == p.Name })
}

// writer returns a sender of a load.
func (p *runningDatabase) writer(c remoteload.Config, connections int) (*loadgen.Writer, error) {
	traffic, err := remoteload.New(c)
	if err != nil {
		return nil, err
	}
	return loadgen.NewWriter(loadgen.WriterConfig{URL: p.url + "/api/v1/write", Connections: connections}, traffic)
}

// write sends some rounds of a load, and returns their cost.
func (p *runningDatabase) write(ctx context.Context, w *loadgen.Writer,
	rounds int) (r loadgen.WriterResult, cost time.Duration, err error) {
	before, err := report.CPUTime(p.pid)
	if err != nil {
		return r, 0, err
	}
	if r, err = w.Run(ctx, loadgen.WriterPace{Rounds: rounds}); err != nil {
		return r, 0, err
	}
	if err := wait(ctx, afterwards); err != nil {
		return r, 0, err
	}
	after, err := report.CPUTime(p.pid)
	return r, after - before, err
}

// find returns how many samples of a load's rounds are found by queries. It is an error if queries
// find only some of the series.
func (p *runningDatabase) find(ctx context.Context, c remoteload.Config, rounds int) (samples uint64, err error) {
	var series uint64
	for _, name := range remoteload.Names() {
		counts := fmt.Sprintf("count_over_time(%s{job=%q}[%dms])", name, c.Job(), int64(rounds)*c.Interval)
		for expr, sum := range map[string]*uint64{"sum(" + counts + ")": &samples, "count(" + counts + ")": &series} {
			n, err := p.query(ctx, expr, c.Time(rounds-1))
			if err != nil {
				return 0, err
			}
			*sum += n
		}
	}
	if series != uint64(c.Series) {
		return samples, fmt.Errorf("samples of %d series were acknowledged, but the query found %d series", c.Series, series)
	}
	return samples, nil
}

// query returns the value of an expression at a time in Unix milliseconds, or 0 if it has no value.
func (p *runningDatabase) query(ctx context.Context, expr string, at int64) (uint64, error) {
	// Without nocache, VictoriaMetrics would change the time of the query.
	params := url.Values{"query": {expr}, "time": {strconv.FormatFloat(float64(at)/1000, 'f', 3, 64)}, "nocache": {"1"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?"+params.Encode(), nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	var found struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(text, &found); err != nil || answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("query %s: %s: %.200s", expr, answer.Status, text)
	}
	if len(found.Data.Result) == 0 {
		return 0, nil
	}
	value, _ := found.Data.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("query %s: the answer %.80q is not a number", expr, value)
	}
	return uint64(v), nil
}

// settle waits until the process is idle, that is, until it has finished the work that remains from its
// start or from its history.
func (p *runningDatabase) settle(ctx context.Context, atMost time.Duration) error {
	const (
		look  = 500 * time.Millisecond
		quiet = look / 20
	)
	for begun := time.Now(); time.Since(begun) < atMost; {
		before, err := report.CPUTime(p.pid)
		if err != nil {
			return err
		}
		if err := wait(ctx, look); err != nil {
			return err
		}
		after, err := report.CPUTime(p.pid)
		if err != nil {
			return err
		}
		if after-before < quiet {
			return nil
		}
	}
	return nil
}
