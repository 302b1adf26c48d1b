package peer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/usage"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// maxTenant bounds the name of a tenant, in bytes. Entries have the same bound.
const maxTenant = 255

// Shared is what a process tells the leader each second.
type Shared struct {
	Process uint64               // a random number of the process
	Uses    map[string]usage.Use // what tenants use of their limits in the process
	Books   *ledger.Claim        // of a collector; nil from a node, since nodes ask each other for Figures
	Stages  []stage.Stats        // of a collector since its start; empty in most calls

	Delivered *Delivered // nil if the process reads no DogStatsD

	Refusals map[string]watermark.Refusal // by tenant
}

// Delivered says up to when the group's log has all windows of a collector.
type Delivered struct {
	Producer uint64 // the collector's number, which survives its process
	Through  int64  // Unix milliseconds
	Final    bool   // the process ends, and has no more windows
}

// ShareAnswer is what the leader answers.
type ShareAnswer struct {
	usage.Answer
	Heard []Heard // of all collectors that have not left; only a node gets it, since it may lead next
}

// Heard is what a collector last said about its windows.
type Heard struct {
	Producer uint64
	Through  int64         // as in Delivered
	Age      time.Duration // since the collector said so
}

// Share tells a node, which should be the leader, of this process.
func (p *Peers) Share(ctx context.Context, to string, x Shared) (ShareAnswer, error) {
	in := &wire.ShareRequest{Process: x.Process, Uses: writeUses(x.Uses), Books: writeBooks(x.Books),
		Stages: writeStages(x.Stages), Refusals: writeRefusals(x.Refusals)}
	if d := x.Delivered; d != nil {
		in.Delivered = &wire.Delivered{Producer: d.Producer, Through: d.Through, Final: d.Final}
	}
	return call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.ShareReply, error) {
			in.Hello = h
			return c.Share(ctx, in)
		}, readShare)
}

// Share handles a call with the uses of another process.
func (s *Server) Share(ctx context.Context, in *wire.ShareRequest) (*wire.ShareReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsCluster); err != nil {
		return nil, err
	}
	s.pushers.called(in.GetHello(), nil)
	x, err := readShared(in)
	if err != nil {
		return nil, s.refusal(codes.InvalidArgument, refusedMalformed, "a report from %s: %w", callerOf(ctx), err)
	}
	if callerOf(ctx).Collector { // it answers no senders
		x.Refusals = nil
	} else {
		x.Books, x.Stages = nil, nil
	}
	a, err := s.Handler.Share(ctx, callerOf(ctx).Name, x)
	if err != nil {
		return &wire.ShareReply{Error: encodeError(err)}, nil
	}
	r := &wire.ShareReply{Others: writeUses(a.Others), Whole: a.Whole}
	for tenant, b := range a.Bounds {
		r.Bounds = append(r.Bounds, &wire.Bounds{Tenant: tenant, Series: uint32(b.Series),
			MetricSeries: uint32(b.MetricSeries), NewSeries: uint32(b.NewSeries)})
	}
	if !callerOf(ctx).Collector {
		r.Heard = writeHeard(a.Heard)
	}
	return r, nil
}

func writeHeard(all []Heard) (out []*wire.Heard) {
	for _, h := range all {
		out = append(out, &wire.Heard{Producer: h.Producer, Through: h.Through, Age: h.Age.Milliseconds()})
	}
	return out
}

func readHeard(in []*wire.Heard) (all []Heard, err error) {
	if len(in) > usage.MaxProcesses {
		return nil, fmt.Errorf("it has heard of %d collectors, but at most %d are possible", len(in), usage.MaxProcesses)
	}
	for _, h := range in {
		if min(h.GetThrough(), h.GetAge()) < 0 || max(h.GetThrough(), h.GetAge()) > maxTime {
			return nil, fmt.Errorf("it has heard of windows through %d ms, %d ms ago", h.GetThrough(), h.GetAge())
		}
		all = append(all, Heard{h.GetProducer(), h.GetThrough(), time.Duration(h.GetAge()) * time.Millisecond})
	}
	return all, nil
}

// readShared refuses what no process tells.
func readShared(in *wire.ShareRequest) (x Shared, err error) {
	x.Process = in.GetProcess()
	if x.Uses, err = readUses(in.GetUses()); err == nil {
		x.Books, err = readBooks(in.GetBooks())
	}
	if err == nil {
		x.Stages, err = readStages(in.GetStages())
	}
	if err == nil {
		x.Delivered, err = readDelivered(in.GetDelivered())
	}
	if err == nil {
		x.Refusals, err = readRefusals(in.GetRefusals())
	}
	return x, err
}

// writeRefusals omits tenants for which a report has no room.
func writeRefusals(all map[string]watermark.Refusal) (out []*wire.Refusal) {
	for tenant, r := range all {
		if len(out) == usage.MaxTenants {
			break
		}
		out = append(out, &wire.Refusal{Tenant: tenant, Since: r.Since, Last: r.Last})
	}
	return out
}

// readRefusals refuses more of them than writeRefusals ever makes.
func readRefusals(in []*wire.Refusal) (map[string]watermark.Refusal, error) {
	if len(in) > usage.MaxTenants {
		return nil, fmt.Errorf("it refuses requests of %d tenants, but at most %d are allowed", len(in), usage.MaxTenants)
	}
	var all map[string]watermark.Refusal
	for _, r := range in {
		name := r.GetTenant()
		if len(name) == 0 || len(name) > maxTenant {
			return nil, fmt.Errorf("the name of a tenant has %d bytes, but 1 to %d are allowed", len(name), maxTenant)
		}
		if r.GetLast() < 0 || r.GetSince() < r.GetLast() || r.GetSince() > maxTime {
			return nil, fmt.Errorf("it has refused requests of tenant %q since %d ms, the last one %d ms ago", name,
				r.GetSince(), r.GetLast())
		}
		if all == nil {
			all = make(map[string]watermark.Refusal, len(in))
		}
		all[strings.Clone(name)] = watermark.Refusal{Since: r.GetSince(), Last: r.GetLast()}
	}
	return all, nil
}

func readDelivered(in *wire.Delivered) (*Delivered, error) {
	if in == nil {
		return nil, nil
	}
	if in.GetThrough() < 0 || in.GetThrough() > maxTime {
		return nil, fmt.Errorf("windows are delivered through %d ms", in.GetThrough())
	}
	return &Delivered{in.GetProducer(), in.GetThrough(), in.GetFinal()}, nil
}

func writeBooks(b *ledger.Claim) *wire.Books {
	if b == nil {
		return nil
	}
	out := &wire.Books{Producer: b.Producer, Started: b.Started, Boundary: b.Boundary, Final: b.Final}
	for tenant, text := range b.Encode() {
		out.Tenants = append(out.Tenants, &wire.TenantBooks{Tenant: tenant, Json: text})
	}
	return out
}

// maxTime is the latest time that books may have, in Unix milliseconds. Entries have the same bound.
const maxTime = 9_000_000_000_000

// readBooks refuses books that are larger than writeBooks ever makes, and figures that no process has.
func readBooks(in *wire.Books) (*ledger.Claim, error) {
	if in == nil {
		return nil, nil
	}
	b := &ledger.Claim{Producer: in.GetProducer(), Started: in.GetStarted(), Boundary: in.GetBoundary(),
		Final: in.GetFinal(), Tenants: make(map[string]ledger.Tenant, len(in.GetTenants()))}
	if min(b.Started, b.Boundary) < 0 || max(b.Started, b.Boundary) > maxTime {
		return nil, fmt.Errorf("its books begin at %d and end at %d, and times are 0 to %d", b.Started, b.Boundary,
			int64(maxTime))
	}
	size := 0
	for _, t := range in.GetTenants() {
		if size += len(t.GetTenant()) + len(t.GetJson()); size > ledger.MaxClaim {
			return nil, fmt.Errorf("its books have more than %d bytes", ledger.MaxClaim)
		}
		if n := len(t.GetTenant()); n == 0 || n > maxTenant {
			return nil, fmt.Errorf("the name of a tenant has %d bytes, but 1 to %d are allowed", n, maxTenant)
		}
		one, err := ledger.ParseTenant(t.GetJson())
		if err != nil {
			return nil, fmt.Errorf("tenant %q: %w", t.GetTenant(), err)
		}
		b.Tenants[strings.Clone(t.GetTenant())] = one
	}
	return b, nil
}

func writeStages(stages []stage.Stats) (all []*wire.StageFigures) {
	for i := range stages {
		s := &stages[i]
		all = append(all, &wire.StageFigures{Stage: uint32(s.Stage), Input: uint32(s.Input), Samples: s.Samples,
			Spent: writeDurations(&s.Spent), Age: writeDurations(&s.Age)})
	}
	return all
}

func writeDurations(h *stage.Histogram) *wire.Durations {
	out := &wire.Durations{Sum: h.Sum, Zero: h.Zero}
	for _, bucket := range slices.Sorted(maps.Keys(h.Buckets)) {
		out.Buckets, out.Counts = append(out.Buckets, int32(bucket)), append(out.Counts, uint64(h.Buckets[bucket]))
	}
	return out
}

// readStages refuses figures that no process has.
func readStages(in []*wire.StageFigures) (all []stage.Stats, err error) {
	if most := int(stage.NumStages) * int(stage.NumInputs); len(in) > most {
		return nil, fmt.Errorf("it has figures of %d stages, and there are %d", len(in), most)
	}
	for _, x := range in {
		if x.GetStage() >= uint32(stage.NumStages) || x.GetInput() >= uint32(stage.NumInputs) {
			return nil, fmt.Errorf("there is no stage %d of input %d", x.GetStage(), x.GetInput())
		}
		s := stage.Stats{Stage: stage.Stage(x.GetStage()), Input: stage.Input(x.GetInput()), Samples: x.GetSamples()}
		for _, of := range []struct {
			to   *stage.Histogram
			from *wire.Durations
		}{{&s.Spent, x.GetSpent()}, {&s.Age, x.GetAge()}} {
			if *of.to, err = readDurations(of.from); err != nil {
				return nil, err
			}
		}
		if err := s.Check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(y stage.Stats) bool { return y.Stage == s.Stage && y.Input == s.Input }) {
			return nil, fmt.Errorf("it has figures of stage %v and input %v twice", s.Stage, s.Input)
		}
		all = append(all, s)
	}
	return all, nil
}

func readDurations(in *wire.Durations) (stage.Histogram, error) {
	h := stage.Histogram{Sum: in.GetSum(), Zero: in.GetZero(), Count: in.GetZero()}
	counts := in.GetCounts()
	if len(in.GetBuckets()) != len(counts) || len(counts) > stage.MaxBuckets {
		return h, fmt.Errorf("%d buckets have %d counts, and at most %d are allowed", len(in.GetBuckets()), len(counts),
			stage.MaxBuckets)
	}
	h.Buckets = make(map[int]int64, len(counts))
	for i, bucket := range in.GetBuckets() {
		n := counts[i]
		if n > math.MaxInt64 || i > 0 && bucket <= in.GetBuckets()[i-1] {
			return h, fmt.Errorf("bucket %d with %d durations is out of order or too large", bucket, n)
		}
		h.Buckets[int(bucket)] = int64(n)
		h.Count += n
	}
	return h, nil
}

// writeUses omits tenants and metrics for which a report has no room.
func writeUses(uses map[string]usage.Use) (all []*wire.Use) {
	for tenant, u := range uses {
		if len(all) == usage.MaxTenants {
			break
		}
		out := &wire.Use{Tenant: tenant, Samples: u.Samples, Series: uint32(u.Series), New: uint32(max(0, u.New))}
		for name, series := range u.Metrics {
			if len(out.Metrics) == usage.MaxMetrics {
				break
			}
			if out.Metrics == nil {
				out.Metrics = map[string]uint32{}
			}
			out.Metrics[name] = uint32(series)
		}
		all = append(all, out)
	}
	return all
}

// readUses refuses a report that is larger than writeUses ever makes.
func readUses(in []*wire.Use) (map[string]usage.Use, error) {
	if len(in) > usage.MaxTenants {
		return nil, fmt.Errorf("it has %d tenants, but at most %d are allowed", len(in), usage.MaxTenants)
	}
	uses := make(map[string]usage.Use, len(in))
	for _, x := range in {
		name := x.GetTenant()
		if len(name) == 0 || len(name) > maxTenant {
			return nil, fmt.Errorf("the name of a tenant has %d bytes, but 1 to %d are allowed", len(name), maxTenant)
		}
		if n := len(x.GetMetrics()); n > usage.MaxMetrics {
			return nil, fmt.Errorf("tenant %q has %d metrics, but at most %d are allowed", name, n, usage.MaxMetrics)
		}
		tooMany := max(x.GetSeries(), x.GetNew()) > math.MaxInt32
		if x.GetSamples() < 0 || x.GetSamples() > math.MaxInt32 || tooMany {
			return nil, fmt.Errorf("tenant %q has %d samples, %d series and %d new ones, and at most 2^31 are possible",
				name, x.GetSamples(), x.GetSeries(), x.GetNew())
		}
		u := usage.Use{Samples: x.GetSamples(), Series: int(x.GetSeries()), New: int(x.GetNew())}
		for metric, series := range x.GetMetrics() {
			if u.Metrics == nil {
				u.Metrics = make(map[string]int, len(x.GetMetrics()))
			}
			u.Metrics[metric] = int(series & math.MaxInt32)
		}
		uses[name] = u
	}
	return uses, nil
}

func readShare(r *wire.ShareReply) (a ShareAnswer, err error) {
	if err := decodeError(r.GetError()); err != nil {
		return a, err
	}
	if a.Others, err = readUses(r.GetOthers()); err != nil {
		return a, fmt.Errorf("the use of other processes: %w", err)
	}
	if a.Heard, err = readHeard(r.GetHeard()); err != nil {
		return a, fmt.Errorf("the answer of the leader: %w", err)
	}
	a.Whole, a.Bounds = r.GetWhole(), make(map[string]usage.Bounds, len(r.GetBounds()))
	for _, b := range r.GetBounds() {
		a.Bounds[b.GetTenant()] = usage.Bounds{Series: int(b.GetSeries()), MetricSeries: int(b.GetMetricSeries()),
			NewSeries: int(b.GetNewSeries())}
	}
	return a, nil
}

// pushers are the collectors that called in the last 10 minutes.
type pushers struct {
	mu   sync.Mutex
	last map[string]pusher
}

type pusher struct {
	called, pushed, told  time.Time // the last time of each; zero if it has not happened
	left                  time.Time // when it left; it is not shown after that; zero if it has not left
	producer, incarnation uint64    // of the last push
	report                *Report
}

const (
	// maxPushers bounds how many collectors are remembered. Calls of further collectors are answered
	// as well.
	maxPushers = 1000

	// forgetPusher is how long a collector is remembered after its last call. For a collector that has
	// pushed nothing here, the time is forgetCaller: such a collector calls each second while it looks
	// for the leader, and the method Left cannot find it.
	forgetPusher = 10 * time.Minute
	forgetCaller = 5 * time.Second

	// stopping is how long a process that has left may go on with other calls.
	stopping = 10 * time.Second
)

// called records a call of a collector, and its push if the call is a push. It ignores a process that
// neither pushes nor reports, because such a process is a gateway.
func (p *pushers) called(h *wire.Hello, push *entry.Push) {
	if h.GetFrom() != 0 || push == nil && h.GetReport() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one, known := p.last[h.GetNode()]
	if !known && len(p.last) >= maxPushers {
		p.forget()
		if len(p.last) >= maxPushers {
			return
		}
	}
	if p.last == nil {
		p.last = map[string]pusher{}
	}
	one.called = time.Now()
	if push != nil || one.called.Sub(one.left) > stopping {
		one.left = time.Time{}
	}
	if push != nil {
		one.pushed, one.producer, one.incarnation = one.called, push.Producer, push.Incarnation
	}
	if r := decodeReport(h.GetReport()); r != nil {
		r.Version = strings.Clone(r.Version)
		one.report, one.told = r, one.called
	}
	p.last[strings.Clone(h.GetNode())] = one
}

// Left says that the collector with this producer and incarnation pushes nothing more. The last push to
// this node may be of another incarnation. That is the next one, if it pushes already, or an earlier
// one, if this incarnation pushed to another node.
func (s *Server) Left(producer, incarnation uint64) {
	p := &s.pushers
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, one := range p.last {
		if one.producer == producer && (one.incarnation == incarnation || time.Since(one.pushed) > stopping) {
			one.left = time.Now()
			p.last[name] = one
		}
	}
}

// forget removes old collectors. The caller has locked mu.
func (p *pushers) forget() {
	maps.DeleteFunc(p.last, func(_ string, one pusher) bool {
		most := forgetPusher
		if one.pushed.IsZero() {
			most = forgetCaller
		}
		return time.Since(one.called) > most
	})
}

// Pushers returns the collectors that called in the last 10 minutes, by name.
func (s *Server) Pushers() (all []Pusher) {
	p := &s.pushers
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	for name, one := range p.last {
		if !one.left.IsZero() {
			continue
		}
		all = append(all, Pusher{name, ago(one.pushed), one.report, ago(one.told)})
	}
	slices.SortFunc(all, func(a, b Pusher) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ago returns the time since t, or -1 s for the zero time.
func ago(t time.Time) time.Duration {
	if t.IsZero() {
		return -time.Second
	}
	return time.Since(t)
}
