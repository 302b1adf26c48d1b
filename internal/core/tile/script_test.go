package tile

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts in testdata")

// base is the time 0s of the scripts, a full minute.
const base = 1_763_679_960_000

func testConfig() *Config {
	return &Config{
		CounterTTL: 5 * time.Minute, GaugeTTL: 5 * time.Minute, CheckTTL: time.Hour, UpDownTTL: 20 * time.Minute,
		OutOfOrder: 10 * time.Minute,
	}
}

// TestScripts plays the scripts in testdata. Below each command is a line of dashes, followed by the
// output of the command; `go test -update` rewrites the output.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &player{t: t, config: testConfig()}
			p.shard = New(p.config, base)
			got := p.play(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("the script's output differs from the actual output, which is\n%s", got)
			}
		})
	}
}

type player struct {
	t        *testing.T
	config   *Config
	shard    *Shard
	sequence uint64
	sent     uint64 // values on the wire, in all increments
	folded   Folded // of all windows
}

// play runs a script and returns it with the actual output of the commands.
func (p *player) play(text string) string {
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		command, _, _ := strings.Cut(block+"\n", "----\n")
		out.WriteString(command)
		out.WriteString("----\n")
		out.WriteString(p.run(command))
	}
	return out.String()
}

func (p *player) run(block string) string {
	var lines []string
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	words := strings.Fields(lines[0])
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	switch words[0] {
	case "window":
		return p.window(args, lines[1:])
	case "close":
		return p.close(args)
	case "live":
		return p.live(args)
	case "stored":
		p.shard.Stored("default", p.millis(args["until"]))
		return ""
	case "restart":
		shard, err := ParseState(p.config, p.shard.AppendState(nil))
		if err != nil {
			p.t.Fatal(err)
		}
		p.shard = shard
		return ""
	}
	p.t.Fatalf("unknown command %q", words[0])
	return ""
}

func (p *player) millis(s string) int64 {
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return base + d.Milliseconds()
}

// window start=3s [producer=1] [sequence=1]: folds the increments in the lines below, one a line.
func (p *player) window(args map[string]string, lines []string) string {
	p.sequence++
	h := batch.Header{
		Tenant: []byte("default"), Producer: 1, Incarnation: 1, Sequence: p.sequence, Second: p.millis(args["start"]) / 1000,
	}
	if s := args["producer"]; s != "" {
		h.Producer, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := args["sequence"]; s != "" {
		h.Sequence, _ = strconv.ParseUint(s, 10, 64)
	}
	h.UpDown = slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "updown") })
	b := batch.Begin(nil, &h)
	for _, line := range lines {
		inc := p.increment(line, h.Second)
		p.sent += uint64(inc.Samples)
		b = inc.Append(b, h.Second)
	}
	batch.End(b, uint32(len(lines)))
	f, err := p.shard.Fold(b)
	p.folded.Add(f)
	out := fmt.Sprintf("samples=%d", f.Samples)
	for _, c := range []struct {
		name string
		n    uint64
	}{{"late", f.Late}, {"late gauges", f.LateGauge}, {"ahead", f.Ahead}, {"refused", f.Refused},
		{"unfit", f.Unfit}, {"repeated", f.Repeated}} {
		if c.n > 0 {
			out += fmt.Sprintf(" %s=%d", c.name, c.n)
		}
	}
	if err != nil {
		out += " error: " + err.Error()
	}
	return out + "\n"
}

// increment reads "kind name value[,value] [at=0.5s] [T=3s] [delta=3s] [change] [source=1] [merge=sum] [bounds=1,10]
// [x=trace:value@3s]".
func (p *player) increment(line string, second int64) *batch.Increment {
	words := strings.Fields(line)
	kind := map[string]series.Kind{"counter": series.Counter, "gauge": series.Gauge, "timer": series.Timer,
		"set": series.Set, "check": series.Check, "updown": series.UpDown}[words[0]]
	inc := &batch.Increment{
		Key: series.AppendKey(nil, kind, labels.FromStrings("__name__", words[1])), At: second*1e9 + 5e8,
	}
	policy := series.DefaultPolicy
	for _, w := range words[3:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "at":
			inc.At = p.millis(v) * 1e6
		case "T":
			inc.Time = p.millis(v) / 1000
		case "delta":
			inc.Delta = p.millis(v)
		case "change":
			inc.Relative = true
		case "source":
			inc.Source, _ = strconv.ParseUint(v, 10, 64)
		case "merge":
			policy.Merge = map[string]series.Merge{"sum": series.MergeSum, "min": series.MergeMin, "max": series.MergeMax}[v]
		case "bounds":
			policy.Bounds = p.floats(v)
		case "x":
			trace, v, _ := strings.Cut(v, ":")
			v, at, _ := strings.Cut(v, "@")
			inc.Exemplar = &batch.Exemplar{Value: p.floats(v)[0], Time: p.millis(at), Trace: batch.TraceOf([]byte(trace))}
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	inc.Policy = series.AppendPolicy(nil, &policy)
	values := strings.Split(words[2], ",")
	inc.Samples = uint32(len(values))
	switch kind {
	case series.Set:
		inc.Set = new(distinct.Set)
		for _, v := range values {
			inc.Set.Add(distinct.Hash([]byte(v)))
		}
	case series.Timer:
		p.timer(inc, &policy, p.floats(words[2]))
	default:
		for _, v := range p.floats(words[2]) {
			if kind == series.Counter || kind == series.UpDown {
				inc.Value += v
			} else {
				inc.Value = v
			}
		}
	}
	return inc
}

func (p *player) timer(inc *batch.Increment, policy *series.Policy, values []float64) {
	if policy.Bounds == nil {
		inc.Timer = new(histogram.Exponential)
		inc.Timer.Reset(policy.Schema)
	} else {
		inc.Classic = make([]float64, len(policy.Bounds)+1)
	}
	for _, v := range values {
		if inc.Timer != nil {
			inc.Timer.Observe(v, 1, int(policy.MaxBuckets))
			continue
		}
		i, _ := slices.BinarySearch(policy.Bounds, v)
		inc.Classic[i]++
		inc.Sum += v
	}
}

func (p *player) floats(s string) (values []float64) {
	for _, v := range strings.Split(s, ",") {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		values = append(values, f)
	}
	return values
}

// close [until=60s] [leap] [width=1m] [quiet] [unstored] closes the next tile. With `until`, it closes
// all tiles up to that time: one after the other, or in one step if `leap` is given. The samples of
// these tiles then count as stored, unless `unstored` is given.
func (p *player) close(args map[string]string) string {
	until := p.shard.Closed() + finest.Millis()
	if args["until"] != "" {
		until = p.millis(args["until"])
	}
	var out bytes.Buffer
	for p.shard.Closed() < until {
		next := p.shard.Closed() + finest.Millis()
		if _, leap := args["leap"]; leap {
			next = until
		}
		closed := p.shard.Close(next, p.config)
		if len(closed.Waiting) > 0 {
			out.WriteString(p.describe(closed.Waiting[0], args["width"]))
		}
		if _, held := args["unstored"]; !held {
			p.shard.AllStored()
		}
	}
	if _, quiet := args["quiet"]; quiet {
		return ""
	}
	return sorted(out.String())
}

// describe lists the samples of a tile, for one width, or for all widths if `width` is empty.
func (p *player) describe(waiting *Waiting, width string) string {
	var out strings.Builder
	for w, samples := range waiting.Samples {
		if width != "" && width != Width(w).String() {
			continue
		}
		for _, s := range samples {
			fmt.Fprintf(&out, "%3s %s", Width(w), describe(s.Series.Labels, Point{s.T, s.V, s.H}))
			if x := s.Exemplar; x != nil {
				fmt.Fprintf(&out, " x=%s:%g@%v", x.Trace.String(), x.Value, time.Duration(x.Time-base)*time.Millisecond)
			}
			out.WriteString("\n")
		}
	}
	return sorted(out.String())
}

// sorted orders a block by width, series and time, since maps have no order.
func sorted(block string) string {
	lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
	if lines[0] == "" {
		return ""
	}
	key := func(line string) string {
		f := strings.Fields(line)
		at := f[len(f)-1]
		if i := slices.IndexFunc(f, func(w string) bool { return strings.HasPrefix(w, "@") }); i >= 0 {
			at = f[i]
		}
		d, _ := time.ParseDuration(at[1:])
		return fmt.Sprintf("%s %s %020d", f[0], f[1], d.Milliseconds()+1e9)
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(key(a), key(b)) })
	return strings.Join(lines, "\n") + "\n"
}

// live stamp=13s [until=12.5s] [width=10s] [name=a]
func (p *player) live(args map[string]string) string {
	w := Width10s
	if args["width"] == "1m" {
		w = Width1m
	}
	var matchers []*labels.Matcher
	if name := args["name"]; name != "" {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, "__name__", name))
	}
	var out bytes.Buffer
	until := int64(math.MaxInt64)
	if args["until"] != "" {
		until = p.millis(args["until"])
	}
	for _, l := range p.shard.Live("default", w, p.millis(args["stamp"]), until, matchers) {
		for _, point := range l.Points {
			fmt.Fprintf(&out, "%3s %s\n", w, describe(l.Labels, point))
		}
	}
	return sorted(out.String())
}

func describe(ls labels.Labels, p Point) string {
	name := ls.Get("__name__")
	if le := ls.Get("le"); le != "" {
		name += "{le=" + le + "}"
	}
	at := "@" + (time.Duration(p.T-base) * time.Millisecond).String()
	switch {
	case p.H != nil && value.IsStaleNaN(p.H.Sum), p.H == nil && value.IsStaleNaN(p.V):
		return fmt.Sprintf("%s %s stale", name, at)
	case p.H != nil:
		if err := p.H.Validate(); err != nil {
			return fmt.Sprintf("%s %s invalid: %v", name, at, err)
		}
		return fmt.Sprintf("%s %s count=%g sum=%g buckets=%v", name, at, p.H.Count, p.H.Sum, p.H.PositiveBuckets)
	}
	return fmt.Sprintf("%s %s %s", name, at, strconv.FormatFloat(p.V, 'g', -1, 64))
}
