package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/member"
)

// buildPrevious builds the previous release once, beside the program of the tree, and returns its path. The release's
// commit is in testdata/previous. A shallow clone lacks that commit. Then the program of the tree takes its place, and
// the tests only show that programs are changed without loss.
func buildPrevious(t *testing.T) string {
	t.Helper()
	previousBuilt.Do(func() {
		text, err := os.ReadFile(filepath.Join("testdata", "previous"))
		if err != nil {
			t.Fatal(err)
		}
		commit := strings.Fields(string(text))[0]
		if out, err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
			t.Logf("the clone lacks the previous release %s: %s", commit, out)
			must(t, "cp", freshet, previousProgram())
			return
		}
		dir := t.TempDir()
		must(t, "sh", "-c", fmt.Sprintf("git -C .. archive %s | tar -x -C %s", commit, dir))
		build := exec.Command("go", "build", "-C", dir, "-tags", "poison", "-ldflags", "-s -w", "-o", previousProgram(),
			"./cmd/freshet")
		build.Env = append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the previous release %s: %v\n%s", commit, err, out)
		}
	})
	return previousProgram()
}

var previousBuilt sync.Once

// previousProgram returns the path of the previous release's program.
func previousProgram() string { return freshet + "-previous" }

// One machine goes from the previous release to the present program, and keeps tiles, totals, samples of remote write,
// events and rules. A backup from before still opens with the previous release.
func TestUpgradeOfOneMachine(t *testing.T) {
	t.Parallel()
	previous := buildPrevious(t)
	ofPrevious := func(dir string) *process {
		cmd := serveCommand(dir)
		cmd.Path, cmd.Args[0] = previous, previous
		return launch(t, dir, cmd)
	}
	old := ofPrevious(dataDir(t))
	l := startLoad(t, old.Unixgram)
	event(t, old, "deploy")
	old.mustWrite(t, requestV2(time.Now().UnixMilli(), 7, "upgrade_written"))
	old.mustSet(t, http.MethodPost, "/team", "name: kept\ninterval: 1s\nrules: [{record: seven, expr: vector(7)}, "+
		"{alert: Waits, expr: vector(1), for: 1h}]")
	begun := time.Now().Add(100 * time.Millisecond)                 // so the load has counted in this tile
	reach(begun.Truncate(tileWidth).Add(tileWidth + 7*time.Second)) // the first tile is stored, the second is open
	stored := time.Now().Truncate(tileWidth)
	want := old.tiles(t, begun, stored)
	snapshot := filepath.Join(dataDir(t), "snapshot")
	must(t, previous, "backup", snapshot, "--server", "http://"+old.HTTP)
	l.stop()
	kept := totals{}.add(l.sent())
	old.totals(t, kept, kept)
	since := old.pendingSince(t, "Waits")
	old.terminate(t)

	has := func(p *process) {
		t.Helper()
		if got := p.tiles(t, begun, stored); !reflect.DeepEqual(got, want) {
			t.Errorf("the tiles are\n%v\nwant those of the previous release:\n%v", got, want)
		}
		if err := p.expect("last_over_time(upgrade_written[1h])", 7, 0); err != nil {
			t.Error(err)
		}
		if titles, err := p.titles(); err != nil || !slices.Equal(titles, []string{"deploy"}) {
			t.Errorf("the events are %q, want one, for the deploy; error %v", titles, err)
		}
		p.setGroups(t, "team/kept")
		if got := p.pendingSince(t, "Waits"); !got.Equal(since) {
			t.Errorf("the alert is pending since %v, want %v", got, since)
		}
	}
	p := start(t, old.dataDir)
	has(p)
	p.totals(t, kept, kept)
	again := startLoad(t, p.Unixgram)
	reach(time.Now().Add(2 * time.Second))
	again.stop()
	kept = kept.add(again.sent())
	p.totals(t, kept, kept)
	for expr, want := range map[string]float64{
		"sum(increase(e2e_kill_count[1h] anchored))": kept.counters,
		"sum(resets(e2e_kill_count[1h]))":            0,
	} {
		if err := p.expect(expr, want, 1e-12); err != nil {
			t.Error(err)
		}
	}
	conflicts(t, p)

	restored := filepath.Join(dataDir(t), "data")
	must(t, previous, "restore", snapshot, "--data-dir", restored)
	has(ofPrevious(restored))
}

// pendingSince waits until the only alert, of this name, is pending, and returns since when.
func (p *process) pendingSince(t *testing.T, name string) (since time.Time) {
	t.Helper()
	eventually(t, 30*time.Second, "the alert is pending", func() error {
		var active struct {
			Alerts []struct {
				Labels   map[string]string
				State    string
				ActiveAt time.Time
			}
		}
		if err := p.ask("/api/v1/alerts", nil, &active); err != nil {
			return err
		}
		if len(active.Alerts) != 1 || active.Alerts[0].Labels["alertname"] != name || active.Alerts[0].State != "pending" {
			return fmt.Errorf("the alerts are %+v", active.Alerts)
		}
		since = active.Alerts[0].ActiveAt
		return nil
	})
	return since
}

// Under load, the nodes go from the previous release to the present program, one after the other, and back again. While
// versions are mixed, nodes are killed. Then all go to the present program for good, and collectors follow. Nothing is
// lost or counted twice, and no sender gets an answer of 5xx from a node that is in order. In `make soak`, versions are
// mixed for 10 minutes.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	if os.Getenv(insideVariable) == "" {
		buildPrevious(t)
	}
	if !inNamespace(t) {
		return
	}
	mixed, kills := inCI/2, 1
	if soak {
		mixed, kills = 30*time.Second, 20
	}
	previous := previousProgram()
	l := startClusterOf(t, previous)
	before := l.format()
	l.start("upgrade")
	l.eachOnce(func(node string) {
		l.changes(node, freshet)
		for i := 0; len(l.upgraded(freshet)) == 2 && i < kills; i++ {
			reach(time.Now().Add(mixed))
			victim := nodeNames[i%len(nodeNames)]
			l.restarts("kill", victim, l.nodes[victim], func() {
				l.nodes[victim].kill(t)
				l.begin(victim)
			})
		}
	})
	reach(time.Now().Add(mixed))
	if format := l.format(); format != before {
		t.Errorf("before cluster.upgrade_after, the log uses format %d instead of %d", format, before)
	}
	l.eachOnce(func(node string) { l.changes(node, previous) })
	l.mayNotRetryTwice()
	l.finish(true)

	for _, n := range nodeNames {
		l.extra[n] = append(l.extra[n], "--cluster-upgrade-after", "2s")
	}
	l.start("upgraded")
	l.eachOnce(func(node string) { l.changes(node, freshet) })
	eventually(t, time.Minute, "the log uses the format of the present program", func() error {
		if format := l.format(); format != member.Format {
			return fmt.Errorf("it uses format %d, and the program knows %d", format, member.Format)
		}
		return nil
	})
	l.mayNotRetryTwice()
	l.finish(true)

	secret := l.pushSecret()
	for machine, tenant := range map[string]string{"d": firstTenant, "e": secondTenant} {
		p := l.collectors[tenant]
		p.terminate(t)
		l.programs[machine] = freshet
		l.collectors[tenant] = l.startCollectorAt(machine, p.dataDir, secret, "--dogstatsd-tenant", tenant)
		l.collectors[tenant].waitReady(t)
	}
	l.start("collectors")
	reach(time.Now().Add(inCI))
	l.mostHandOver()
	l.finish(true)
}

// mayNotRetryTwice is a check that no write failed at two nodes in a row; in CI, where the next leader may be slow, at
// three.
func (l *loaded) mayNotRetryTwice() {
	l.t.Helper()
	most := 2
	if soak {
		most = 1
	}
	if tries := max(l.tries, l.writer.tries); tries > most {
		l.t.Errorf("a write failed at %d nodes in a row: %s%s", tries, l.failure, l.writer.failure)
	}
}

// format returns the format that the log uses.
func (l *loaded) format() uint32 {
	l.t.Helper()
	var c answer.Cluster
	if err := l.nodes["a"].ask("/api/v1/status/cluster", nil, &c); err != nil || len(c.Groups) != 1 {
		l.t.Fatalf("the status of the cluster is %+v, %v", c, err)
	}
	return c.Groups[0].Format
}

// changes restarts a node with another program.
func (l *loaded) changes(node, program string) {
	l.t.Helper()
	p := l.nodes[node]
	l.restarts("change of the program", node, p, func() {
		p.terminate(l.t)
		l.programs[node] = program
		l.begin(node)
	})
}

// upgraded returns the nodes that run a program.
func (l *loaded) upgraded(program string) (all []string) {
	for _, n := range nodeNames {
		if l.programs[n] == program {
			all = append(all, n)
		}
	}
	return all
}
