package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// clusterPart is the name of this part in the flag -only.
const clusterPart = "cluster"

const (
	clusterRate   = 20_000 // samples a second
	clusterSeries = 20_000
	clusterBatch  = 2000
	clusterLasts  = 10 * time.Second

	windowContexts = 10_000 // increments a second, each of a different context
)

// clusterLoad is a load of this part.
type clusterLoad struct {
	name  string
	takes time.Duration
	run   clusterRun
}

// clusterRun sends a load to the first of the nodes, which leads, and adds the cost of the load to `to`.
type clusterRun func(ctx context.Context, nodes []*freshet, to *report.ClusterCost) error

func clusterLoads() []clusterLoad {
	return []clusterLoad{
		{"remote write, 20,000 samples a second", clusterLasts,
			clusterWrites(loadgen.WriterPace{Rate: clusterRate, Duration: clusterLasts})},
		{"remote write, flat out", 5 * time.Second, clusterWrites(loadgen.WriterPace{Rounds: 100})},
		{"windows of 10,000 increments", clusterLasts, clusterWindows},
	}
}

// clusterSteps returns the steps of this part. One machine and three nodes take turns.
func (l *lab) clusterSteps() (steps []step) {
	part := &report.Cluster{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion()}
	l.results.Cluster = part
	for run := range l.runs {
		for _, load := range clusterLoads() {
			steps = append(steps, step{
				what:  fmt.Sprintf("%s, run %d: one machine that syncs each commit", load.name, run+1),
				takes: load.takes + 3*time.Second,
				do: func(ctx context.Context) error {
					return l.withFreshet(ctx, "all", func(f *freshet) error {
						return load.run(ctx, []*freshet{f}, &part.Load(load.name).Alone)
					}, "--aggregator-fsync", "commit", "--store-wal-fsync", "commit")
				},
			}, step{
				what:  fmt.Sprintf("%s, run %d: three nodes", load.name, run+1),
				takes: load.takes + 8*time.Second,
				do: func(ctx context.Context) error {
					return l.withCluster(ctx, func(nodes []*freshet) error {
						return load.run(ctx, nodes, &part.Load(load.name).Three)
					})
				},
			})
		}
	}
	return steps
}

// withCluster runs three nodes until `do` returns. The first of them leads.
func (l *lab) withCluster(ctx context.Context, do func([]*freshet) error) (err error) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	secret, err := exec.CommandContext(ctx, l.freshet, "cluster", "secret").Output()
	if err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	secretFile := filepath.Join(dir, "secret")
	if err := os.WriteFile(secretFile, secret, 0o600); err != nil {
		return err
	}
	names := []string{"a", "b", "c"}
	addresses, err := peerAddresses(names)
	if err != nil {
		return err
	}
	var nodes []*freshet
	defer func() {
		for _, f := range nodes {
			err = errors.Join(err, f.stop())
		}
	}()
	for _, name := range names {
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o755); err != nil {
			return err
		}
		join := []string{"--cluster-join"}
		if len(nodes) == 0 {
			join = nil
			found := exec.CommandContext(ctx, l.freshet, "cluster", "init", "--data-dir", own, "--name", name)
			if out, err := found.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", found, err, out)
			}
		}
		f, err := startFreshet(ctx, l.freshet, own, nil, append(join, "--role", "all", "--cluster-node", name,
			"--cluster-nodes", addresses, "--cluster-secret-file", secretFile)...)
		if err != nil {
			return err
		}
		nodes = append(nodes, f)
	}
	leader, err := clusterLeader(ctx, nodes[0], len(names))
	if err != nil {
		return err
	}
	at := slices.Index(names, leader)
	return do(slices.Concat(nodes[at:], nodes[:at]))
}

// peerAddresses returns an address with a free port for each name, as --cluster-nodes takes them.
func peerAddresses(names []string) (string, error) {
	var all []string
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer l.Close()
		all = append(all, name+"="+l.Addr().String())
	}
	return strings.Join(all, ","), nil
}

// clusterLeader waits until all nodes of a cluster are ready, and returns the leader's name.
func clusterLeader(ctx context.Context, f *freshet, nodes int) (string, error) {
	for deadline := time.Now().Add(startTime); ; {
		var status struct {
			Leader string
			Nodes  []struct{ Ready bool }
		}
		err := f.ask(ctx, "/api/v1/status/cluster", nil, &status)
		ready := 0
		for _, n := range status.Nodes {
			if n.Ready {
				ready++
			}
		}
		if err == nil && ready == nodes && status.Leader != "" {
			return status.Leader, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the cluster is not ready after %v: %+v, %w", startTime, status, err)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// database returns a node as a database.
func (f *freshet) database() *runningDatabase {
	return &runningDatabase{pid: f.cmd.Process.Pid, url: "http://" + f.HTTP}
}

// clusterWrites returns a run that sends remote write, and checks that each node has all samples.
func clusterWrites(pace loadgen.WriterPace) clusterRun {
	return func(ctx context.Context, nodes []*freshet, to *report.ClusterCost) error {
		return writeToCluster(ctx, nodes, to, pace)
	}
}

func writeToCluster(ctx context.Context, nodes []*freshet, to *report.ClusterCost, pace loadgen.WriterPace) error {
	c := remoteload.Standard()
	c.Series, c.Batch, c.Interval = clusterSeries, clusterBatch, 1000
	c.Begin = time.Now().Add(-3 * time.Minute).UnixMilli()
	traffic, err := remoteload.New(c)
	if err != nil {
		return err
	}
	writer, err := loadgen.NewWriter(loadgen.WriterConfig{URL: nodes[0].database().url + "/api/v1/write",
		Connections: writeConnections}, traffic)
	if err != nil {
		return err
	}
	first, err := writer.Run(ctx, loadgen.WriterPace{Rounds: 1})
	if err != nil {
		return err
	}
	var r loadgen.WriterResult
	err = spend(ctx, nodes, to, func() (samples float64, err error) {
		r, err = writer.Run(ctx, pace)
		return float64(r.Sent.Samples), err
	})
	if err != nil {
		return err
	}
	waited := r.Latency
	if pace.Rate > 0 {
		waited = r.FromDue
	}
	milliseconds := func(q float64) float64 { return float64(waited.Quantile(q).Microseconds()) / 1e3 }
	to.P50, to.P99 = append(to.P50, milliseconds(.5)), append(to.P99, milliseconds(.99))
	to.PerSecond = append(to.PerSecond, float64(r.Written)/r.Elapsed.Seconds())
	found := first.Written + r.Written
	to.Acknowledged += found
	for _, f := range nodes {
		n, err := f.database().find(ctx, c, writer.Rounds())
		if err != nil {
			return err
		}
		found = min(found, n)
	}
	to.Found += found
	return nil
}

// clusterWindows sends increments to the first node. About once a second, it measures how soon a query
// finds an increment.
func clusterWindows(ctx context.Context, nodes []*freshet, to *report.ClusterCost) error {
	c := load.Standard()
	c.Contexts, c.MetricsPerPacket, c.PacketSize = windowContexts, 10, frame
	traffic, err := load.New(c)
	if err != nil {
		return err
	}
	begun := time.Now()
	s, err := send(ctx, nodes[0].running(), road{network: udp}, traffic, loadgen.Pace{Rate: windowContexts})
	if err != nil {
		return err
	}
	var fresh []float64
	if err := wait(ctx, 2*time.Second); err != nil { // the first windows create the series
		return err
	}
	err = spend(ctx, nodes, to, func() (samples float64, err error) {
		fresh, err = nodes[0].windowFreshness(ctx, begun, time.Since(begun)+clusterLasts)
		return windowContexts * clusterLasts.Seconds(), err
	})
	s.cancel()
	<-s.done
	if err != nil {
		return err
	}
	slices.Sort(fresh)
	to.Fresh = append(to.Fresh, fresh[len(fresh)*99/100])
	to.PerSecond = append(to.PerSecond, float64(s.result.Sent.Metrics)/time.Since(begun).Seconds())
	return nil
}

// windowFreshness sends an increment about once a second, until the time `end` after `begun`. For each
// increment it returns the milliseconds until a query found it.
func (f *freshet) windowFreshness(ctx context.Context, begun time.Time, end time.Duration) (all []float64, err error) {
	conn, err := net.Dial("udp", f.UDP)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	database := f.database()
	const step = freshEvery + 70*time.Millisecond
	for sum := uint64(1); time.Since(begun) < end; sum++ {
		sent := time.Now()
		if _, err := fmt.Fprint(conn, freshMetric+":1|c"); err != nil {
			return nil, err
		}
		for {
			v, err := database.query(ctx, freshMetric, time.Now().UnixMilli())
			took := time.Since(sent)
			if err == nil && v >= sum || took > freshLimit {
				all = append(all, float64(took.Microseconds())/1e3)
				break
			}
			if err := wait(ctx, lastLook); err != nil {
				return nil, err
			}
		}
		if err := wait(ctx, step-time.Since(sent)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// spend runs `do`, which returns its number of samples, and adds to `to` what the nodes spent meanwhile.
// The first node leads.
func spend(
	ctx context.Context, nodes []*freshet, to *report.ClusterCost, do func() (samples float64, err error),
) error {
	before, err := spent(ctx, nodes)
	if err != nil {
		return err
	}
	samples, err := do()
	if err == nil {
		err = wait(ctx, afterwards)
	}
	if err != nil {
		return err
	}
	after, err := spent(ctx, nodes)
	if err != nil {
		return err
	}
	var each []float64
	sum := 0.0
	for i := range nodes {
		each = append(each, (after.cpu[i]-before.cpu[i]).Seconds()*1e6/samples)
		sum += each[i]
	}
	to.Seconds = append(to.Seconds, sum)
	if len(nodes) > 1 {
		to.Leader, to.Followers = append(to.Leader, each[0]), append(to.Followers, sum-each[0])
		to.Log = append(to.Log, 1e3*(after.logSeconds-before.logSeconds)/max(1, after.logWrites-before.logWrites))
	}
	return nil
}

// expense is what the nodes have spent since they started.
type expense struct {
	cpu                   []time.Duration
	logSeconds, logWrites float64 // of the first node's log
}

func spent(ctx context.Context, nodes []*freshet) (e expense, err error) {
	for _, f := range nodes {
		cpu, err := report.CPUTime(f.cmd.Process.Pid)
		if err != nil {
			return e, err
		}
		e.cpu = append(e.cpu, cpu)
	}
	return e, nodes[0].metrics(ctx, func(family string, m *dto.Metric) {
		if family == "freshet_group_log_append_seconds" {
			e.logSeconds, e.logWrites = m.Histogram.GetSampleSum(), float64(m.Histogram.GetSampleCount())
		}
	})
}
