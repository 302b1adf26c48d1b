package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/member"
)

// buildPrevious builds the previous release, whose commit is in testdata/previous, beside the program of the tree. A
// shallow clone lacks that commit. Then the program of the tree takes its place, and the test only shows that
// nodes change their programs under load.
func buildPrevious(t *testing.T) {
	t.Helper()
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
}

// previousProgram returns the path of the previous release's program.
func previousProgram() string { return freshet + "-previous" }

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
