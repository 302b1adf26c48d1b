package e2e

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestBackup checks that a restored snapshot has everything that was stored or journalled when the
// snapshot began. It takes the snapshot under load, kills the server, restores the snapshot into
// another directory, and starts a server there. All tiles are the same, sample by sample, and the
// totals continue without a reset that rate() would see.
func TestBackup(t *testing.T) {
	t.Parallel() // the test mostly waits for tiles
	old := start(t, dataDir(t))
	l := startLoad(t, old.Unixgram)
	event(t, old, "deploy")
	begun := time.Now().Add(100 * time.Millisecond)                 // so the load has counted in this tile
	reach(begun.Truncate(tileWidth).Add(tileWidth + 7*time.Second)) // the first tile is stored, the second is open
	journalled := old.journalled(t) / 2                             // each datagram has two samples
	stored := time.Now().Truncate(tileWidth)
	snapshot := filepath.Join(dataDir(t), "snapshot")
	told := runFreshet(t, "backup", snapshot, "--server", "http://"+old.HTTP)
	stores, restoredStores := "tsdb/default/10s: 1 block\n", "tsdb/default/10s: 1 block, "
	if logPath() == groupPath { // the stores are copied with their logs, and the snapshot is as of an entry
		stores, restoredStores = "tsdb: ", "up to entry "
	}
	for _, part := range []string{stores, logPath(), "events.db", "names.db", "rules.db", snapshot + ": "} {
		if !strings.Contains(told, part) {
			t.Errorf("the output of backup lacks %q:\n%s", part, told)
		}
	}
	want := old.tiles(t, begun, stored)
	old.kill(t)
	l.stop()

	// The old directory is gone, as on another machine.
	restored := filepath.Join(dataDir(t), "data")
	if err := os.RemoveAll(old.dataDir); err != nil {
		t.Fatal(err)
	}
	told = runFreshet(t, "restore", snapshot, "--data-dir", restored)
	if !strings.Contains(told, restoredStores) || strings.Contains(told, "warning") {
		t.Errorf("unexpected output of restore:\n%s", told)
	}
	p := start(t, restored)
	if got := p.tiles(t, begun, stored); !reflect.DeepEqual(got, want) {
		t.Errorf("restored tiles:\n%v\nwant the tiles before the backup:\n%v", got, want)
	}
	var events []struct{ Title string }
	if err := p.ask("/api/v1/events", nil, &events); err != nil || len(events) != 1 || events[0].Title != "deploy" {
		t.Errorf("after the restore, the events are %v, want one, for the deploy; error %v", events, err)
	}
	kept := p.totals(t, totals{journalled, journalled}, totals{}.add(l.sent()))

	// Totals continue with new samples, and the next snapshot has them.
	again := startLoad(t, p.Unixgram)
	reach(time.Now().Add(2 * time.Second))
	again.stop()
	kept = p.totals(t, kept.add(again.sent()), kept.add(again.sent()))
	for expr, want := range map[string]float64{
		"sum(increase(e2e_kill_count[1h] anchored))":                  kept.counters,
		"sum(histogram_count(increase(e2e_kill_timer[1h] anchored)))": kept.timers,
		"sum(resets(e2e_kill_count[1h]))":                             0,
	} {
		if err := p.expect(expr, want, 1e-12); err != nil {
			t.Error(err)
		}
	}
	runFreshet(t, "backup", "--server", "http://"+p.HTTP)
	if snapshots, err := os.ReadDir(filepath.Join(restored, "snapshots")); err != nil || len(snapshots) != 1 {
		t.Errorf("the restored server has the snapshots %v, want one; error %v", snapshots, err)
	}
	conflicts(t, p)
}

// A backup or a restore that fails prints the cause, and leaves no files behind.
func TestBackupRefuses(t *testing.T) {
	t.Parallel()
	d := newSmallDisk(t)
	p := start(t, d.dir, "--self-metrics=false") // a snapshot with the server's own metrics would not fit on the disk
	increment(t, p, "before", 1)
	expectSoon(t, p, "before", 1)
	server := "http://" + p.HTTP
	parent := dataDir(t)
	whole := filepath.Join(parent, "whole")
	runFreshet(t, "backup", whole, "--server", server)

	mustFail(t, "exists already", "backup", parent, "--server", server)
	mustFail(t, "create it first", "backup", filepath.Join(parent, "none", "x"), "--server", server)
	mustFail(t, "is `freshet serve` running", "backup", "--server", "http://127.0.0.1:1")
	mustFail(t, "this is not a snapshot", "restore", parent, "--data-dir", filepath.Join(parent, "new"))
	mustFail(t, "is in use by process", "restore", whole, "--data-dir", p.dataDir)
	mustFail(t, "is not empty", "restore", whole, "--data-dir", parent)
	mustFail(t, "--data-dir", "restore", whole)
	sender := filepath.Join(whole, "sender") // restore refuses a link in place of this file
	if err := errors.Join(os.Rename(sender, filepath.Join(parent, "sender")),
		os.Symlink(filepath.Join(parent, "sender"), sender)); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "is not a regular file", "restore", whole, "--data-dir", filepath.Join(parent, "new"))
	if err := os.Rename(filepath.Join(parent, "sender"), sender); err != nil {
		t.Fatal(err)
	}
	cut(t, filepath.Join(whole, "names.db"))
	mustFail(t, "incomplete", "restore", whole, "--data-dir", filepath.Join(parent, "new"))

	d.fill(t, p)
	said := mustFail(t, "backup: ", "backup", "--server", server)
	if !strings.Contains(said, "no space left") && !strings.Contains(said, "file too large") {
		t.Errorf("a backup on a full disk printed %s, want the cause: no space left, or file too large", said)
	}
	if left, err := os.ReadDir(filepath.Join(d.dir, "snapshots")); err != nil || len(left) > 0 {
		t.Errorf("the failed backup left files: %v, error %v", left, err)
	}
	d.free(t, p)
	runFreshet(t, "backup", "--server", server)
}

// runFreshet runs a command that must succeed, and returns its output.
func runFreshet(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), freshet, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("freshet %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// mustFail runs a command that must fail, and checks that it prints the cause.
func mustFail(t *testing.T, why string, args ...string) (said string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), freshet, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), why) {
		t.Errorf("freshet %s: %v, want an error that says %q\n%s", strings.Join(args, " "), err, why, out)
	}
	return string(out)
}

// cut removes the last byte of a file.
func cut(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func event(t *testing.T, p *process, title string) {
	t.Helper()
	conn := dialTap(t, "unixgram", p.Unixgram)
	if _, err := fmt.Fprintf(conn, "_e{%d,0}:%s|", len(title), title); err != nil {
		t.Fatal(err)
	}
}

// tiles returns the load's counters at the end of each tile from `begun` to `stored`.
func (p *process) tiles(t *testing.T, begun, stored time.Time) map[string][]point {
	t.Helper()
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	var data struct{ Result []result }
	if err := p.ask("/api/v1/query_range", url.Values{
		"query": {"e2e_kill_count"}, "start": {seconds(begun.Truncate(tileWidth))}, "end": {seconds(stored)}, "step": {"10"},
	}, &data); err != nil {
		t.Fatal(err)
	}
	all, sum := map[string][]point{}, 0.0
	for _, s := range data.Result {
		all[s.Metric["n"]] = s.Values
		sum += s.Values[len(s.Values)-1].V
	}
	if len(all) != loadContexts || math.IsNaN(sum) || sum == 0 {
		t.Fatalf("the load has %d series with a sum of %v, want %d series with a positive sum", len(all), sum, loadContexts)
	}
	return all
}
