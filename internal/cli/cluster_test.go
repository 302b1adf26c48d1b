package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// One node leads, one has troubles and one is gone.
const threeNodes = `{"status":"success","data":{"cluster":"abc","leader":"a","nodes":[
{"name":"a","ready":true,"applied":700,"lag_seconds":0.04,"part":"voter","version":"1.2.0","ahead_seconds":-0.0021,
"address":"h1:7126","outbox":{"bytes":0,"samples":0,"oldest_seconds":0},"disk":{"free_bytes":34359738368,"size_bytes":68719476736,"min_free_bytes":2147483648,"short":false},"log_bytes":1200000000,"log_append_seconds":0.003,"leaderless_seconds":0,"digest":"agrees",
"digest_applied":640},
{"name":"b","ready":false,"applied":650,"lag_seconds":7.21,"part":"voter","version":"1.2.0","ahead_seconds":2.5,
"address":"h2:7126","missing_blocks":2,"disk":{"free_bytes":1073741824,"size_bytes":68719476736,"min_free_bytes":2147483648,"short":true},"log_bytes":3300000000,"log_append_seconds":4.25,"leaderless_seconds":61.2,"digest":"differs",
"outbox":{"bytes":2097152,"samples":900,"oldest_seconds":60.4},"digest_differed":576,"damage":{"what":"its log","since":"2026-11-28T04:05:06Z"},"log_pins":["checkpoint","shop/raw"]},
{"name":"c","ready":false,"applied":null,"lag_seconds":null,"address":"h3:7126","error":"connection refused"}],
"tenants":[{"tenant":"default","bytes":3221225472},{"tenant":"blue","bytes":1048576}],
"settings_differ":[{"section":"limits","nodes":[["a","c"],["b"]]}],
"versions_differ":[{"version":"1.1.0","collectors":["web-2"]},{"version":"1.2.0","nodes":["a","b"]}],
"collectors":[{"name":"web-1","node":"a","pushed_seconds":0.42},
{"name":"web-2","node":"","pushed_seconds":null,"version":"1.1.0","told_seconds":0.8,
"outbox":{"bytes":3355443,"samples":900,"oldest_seconds":62.04}}]}}`

const threeNodesText = `cluster abc
node  state        part   applied  lag    log      disk free  clock     digest   outbox   version  address  
a     leads        voter  700      0.0 s  1.1 GiB  32.0 GiB   -0.002 s  agrees   0 B      1.2.0    h1:7126  
b     damaged      voter  650      7.2 s  3.1 GiB  1.0 GiB    +2.500 s  differs  2.0 MiB  1.2.0    h2:7126  
c     unreachable         ?        ?      ?        ?          ?         ?        ?                 h3:7126  
node b: damaged since 2026-11-28T04:05:06Z: its log
node b: it has known no leader for 61 s
node b: a write to its log takes 4.2 s: its disk is slow
node b: windows of its collector wait in its outbox, the oldest for 60 s
node b: its disk has 1.0 GiB left, less than cluster.min_free (2.0 GiB); writes are refused if that is so on too many nodes
node b: it lacks 2 imported blocks, which it gets from other nodes; until then, its answers over their times have a warning
node b: its log grows until a checkpoint succeeds
node b: its log grows until store shop/raw can be synced
node b: its state differs from the other nodes' since entry 576, or before: do not trust its answers, and report this bug
node c: connection refused
settings differ in the section limits: a, c | b
versions differ: 1.1.0: collector web-2 | 1.2.0: a, b

collector  pushes to  last push  outbox   behind  told       version  
web-1      a          0.4 s ago  ?        ?       ?                   
web-2      ?          ?          3.2 MiB  62.0 s  0.8 s ago  1.1.0    

tenant   on disk  
default  3.0 GiB  
blue     1.0 MiB  
`

func TestClusterStatus(t *testing.T) {
	server, _ := answering(t, http.StatusOK, threeNodes)
	code, stdout, stderr := freshet(t, "cluster", "status", "--server", server)
	if code != command.OK || stderr != "" || stdout != threeNodesText {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	server, _ = answering(t, http.StatusOK, `{"status":"success","data":{"leader":"","nodes":[]}}`)
	_, stdout, _ = freshet(t, "cluster", "status", "--server", server)
	if want := "no leader: writes fail"; len(stdout) < len(want) || stdout[:len(want)] != want {
		t.Errorf("%s", stdout)
	}
}

// Without a name, drain is for the node of this process, as a hook of Kubernetes needs it.
func TestDrainThisNode(t *testing.T) {
	server, asked := answering(t, http.StatusOK, `{"status":"success"}`)
	t.Setenv("FRESHET_CLUSTER_NODE", "")
	code, _, stderr := freshet(t, "cluster", "drain", "--server", server)
	if code == command.OK || !strings.Contains(stderr, "set FRESHET_CLUSTER_NODE") {
		t.Errorf("without a name: code %d, %s", code, stderr)
	}
	t.Setenv("FRESHET_CLUSTER_NODE", "b")
	for want, args := range map[string][]string{"b": nil, "a": {"a"}} {
		code, stdout, stderr := freshet(t, append([]string{"cluster", "drain", "--server", server}, args...)...)
		if node := asked().Query().Get("node"); code != command.OK || node != want ||
			!strings.HasPrefix(stdout, "Node "+want+" is drained until") {
			t.Errorf("drain %q asks to drain %q: code %d, %s%s", args, node, code, stdout, stderr)
		}
	}
}

// A directory that founds a cluster may contain the data of one machine, or nothing. If it contains data, the
// log begins after the entry for the data, so that no other node can join.
func TestInitWithData(t *testing.T) {
	for _, c := range []struct {
		name   string
		has    []string // paths; a directory ends with a slash
		base   uint64   // the log's base; 0 if no cluster is founded
		prints string
	}{
		{"an empty directory", nil, identity.BaseIndex, "The others: the same with a name"},
		{"an attempt that ended early", []string{"groups/0/"}, identity.BaseIndex, "The others: the same with a name"},
		{"stores", []string{"tsdb/default/"}, identity.DataIndex, "Other nodes may join it then"},
		{"a journal", []string{"journal/"}, identity.DataIndex, "Other nodes may join it then"},
		{"the outbox of a collector", []string{"outbox/"}, 0, "it has outbox"},
		{"somebody's files", []string{"thesis.tex"}, 0, "it has thesis.tex"},
		{"half of a backup", []string{"tsdb/default/", "restore-unfinished/"}, 0, "restore again"},
	} {
		dir := t.TempDir()
		for _, path := range c.has {
			err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o750)
			if !strings.HasSuffix(path, "/") {
				err = os.WriteFile(filepath.Join(dir, path), nil, 0o640)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := freshet(t, "cluster", "init", "--data-dir", dir, "--name", "a")
		if (code == 0) != (c.base > 0) || !strings.Contains(out+errs, c.prints) {
			t.Errorf("%s: exit code %d\n%s%s", c.name, code, out, errs)
		}
		if c.base == 0 {
			continue
		}
		group, err := files.Open(filepath.Join(dir, answer.GroupPath))
		if err != nil {
			t.Fatal(err)
		}
		log, err := entrylog.Open(group, entrylog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if log.Base() != c.base {
			t.Errorf("%s: the log begins after entry %d, want %d", c.name, log.Base(), c.base)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A machine has more rules than a cluster keeps. No cluster is founded: its first start would fail, and without a
// server no group can be deleted.
func TestInitWithTooManyRules(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("n"))
	path := filepath.Join(dir, "rules", "acme", hex.EncodeToString(sum[:])+".yaml")
	for _, d := range []string{filepath.Join(dir, "tsdb"), filepath.Dir(path)} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	initWith := func(annotation string) (code int, said string) {
		t.Helper()
		text := "{namespace: n, groups: [{name: g, rules: [{alert: a, expr: '1', annotations: {a: '" + annotation + "'}}]}]}"
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		code, _, said = freshet(t, "cluster", "init", "--data-dir", dir, "--name", "a")
		return code, said
	}
	if !testing.Short() { // the race detector takes 80 s to parse so much
		code, said := initWith(strings.Repeat("x", ruleset.MaxKept))
		if code == 0 || !strings.Contains(said, "more rules set by the API than a cluster keeps") ||
			!strings.Contains(said, "start the server without a cluster, and delete groups") {
			t.Errorf("with too many rules: exit code %d\n%.1000s", code, said)
		}
		if _, err := os.Stat(filepath.Join(dir, identity.File)); err == nil {
			t.Error("with too many rules, a cluster is founded")
		}
	}
	if code, said := initWith("few"); code != 0 {
		t.Errorf("with fewer rules: exit code %d\n%s", code, said)
	}
}

// Each node has its own name in the command that cluster init prints.
func TestInitPrintsTheNodes(t *testing.T) {
	for name, nodes := range map[string]string{
		"a": "a=HOST:PORT,b=HOST:PORT,c=HOST:PORT",
		"b": "b=HOST:PORT,a=HOST:PORT,c=HOST:PORT",
		"c": "c=HOST:PORT,a=HOST:PORT,b=HOST:PORT",
		"x": "x=HOST:PORT,a=HOST:PORT,b=HOST:PORT",
	} {
		code, out, errs := freshet(t, "cluster", "init", "--data-dir", t.TempDir(), "--name", name)
		if code != 0 || !strings.Contains(out, "--cluster-nodes "+nodes+" ") {
			t.Errorf("node %s: exit code %d\n%s%s\nwant %s", name, code, out, errs, nodes)
		}
	}
}

func TestClusterStatusOfTheScrub(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":{"leader":"a","nodes":[{"name":"a","ready":true,
"scrub":{"bytes":1073741824,"of_bytes":4294967296,"begun":"2026-11-28T04:05:06Z","last":null}},{"name":"b","ready":true,
"scrub":{"bytes":0,"of_bytes":1024,"begun":"2026-11-28T04:05:06Z","last":"2026-11-27T01:02:03Z"}},{"name":"c"}]}}`)
	_, stdout, _ := freshet(t, "cluster", "status", "--server", server)
	const want = "node a: the scrub has read 1.0 GiB of 4.0 GiB since 2026-11-28T04:05:06Z; no pass has ended " +
		"since its start\nnode b: the scrub has read 0 B of 1.0 KiB since 2026-11-28T04:05:06Z; the last pass ended " +
		"2026-11-27T01:02:03Z\n"
	if !strings.HasSuffix(stdout, want) {
		t.Errorf("got\n%s\nwant at its end\n%s", stdout, want)
	}
}

// A node that is filled shows how far it is, and why a try failed.
func TestClusterStatusOfAFill(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":{"leader":"a","nodes":[{"name":"d","part":"joining",
"fill":{"from":"a","bytes":1073741824,"of_bytes":4294967296,"seconds":60,"eta_seconds":180.2,"failures":1,"error":"its disk"}},
{"name":"e","fill":{"from":"","bytes":0,"of_bytes":0,"seconds":1,"eta_seconds":null,"failures":0}},
{"name":"a","ready":true,"log_pins":["backup","fill of node d"]}]}}`)
	_, stdout, _ := freshet(t, "cluster", "status", "--server", server)
	for _, want := range []string{
		"node d is filled: 1.0 GiB of 4.0 GiB, from node a, about 3m0s left\n",
		"node d: 1 tries to fill it failed, the last with: its disk\n",
		"node e is filled: 0 B of 0 B, no node gives its data now\n",
		"node a: its log is kept while a backup is made\n",
		"node a: its log is kept for the fill of node d\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got\n%s\nwant %q", stdout, want)
		}
	}
}
