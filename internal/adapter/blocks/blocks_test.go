package blocks

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

// base is a multiple of two hours, in Unix milliseconds.
const base = 1_700_006_400_000

// source writes a block as Prometheus does, with floats, a stale marker and a native histogram for each label set.
func source(t testing.TB, dir string, all ...labels.Labels) Block {
	t.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 2*time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	for i, ls := range all {
		for n := range int64(300) {
			at := base + n*15_000
			v := float64(i)*1000 + float64(n)
			if n == 299 {
				v = math.Float64frombits(value.StaleNaN)
			}
			if n >= 250 && n < 299 && i%3 == 0 {
				_, err = app.AppendHistogram(0, ls, at, tsdbutil.GenerateTestHistogram(n), nil)
			} else {
				_, err = app.Append(0, ls, at, v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	id, err := w.Flush(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		if b.ID == id {
			return b
		}
	}
	t.Fatalf("no block %s", id)
	return Block{}
}

// contents returns each series of a block with all its samples as text, read by Prometheus' own querier.
func contents(t *testing.T, b Block) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := b.open(func(block *tsdb.Block) error {
		q, err := tsdb.NewBlockQuerier(block, math.MinInt64, math.MaxInt64)
		if err != nil {
			return err
		}
		defer q.Close()
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".*"))
		for set.Next() {
			var text strings.Builder
			it := set.At().Iterator(nil)
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				if kind == chunkenc.ValFloat {
					at, v := it.At()
					fmt.Fprintf(&text, "%d=%x ", at, math.Float64bits(v))
				} else {
					at, h := it.AtFloatHistogram(nil)
					fmt.Fprintf(&text, "%d=%s ", at, h)
				}
			}
			found[set.At().Labels().String()] = text.String()
		}
		return set.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// An added label may change the order of series: a{} is in front of a{c="1"}, and a{b="x"} behind a{b="x", c="1"}
// would be if the label were called d. An index must have its series in order.
func TestAddedLabelsKeepEverySample(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []labels.Labels
	seen := map[string]bool{}
	for range 60 {
		b := labels.NewBuilder(labels.FromStrings("__name__", "m"))
		for _, name := range []string{"a", "c", "e", "g"} {
			if random.IntN(2) == 0 {
				b.Set(name, fmt.Sprint(random.IntN(3)))
			}
		}
		if ls := b.Labels(); !seen[ls.String()] {
			seen[ls.String()] = true
			all = append(all, ls)
		}
	}
	dir := t.TempDir()
	from := source(t, dir, all...)
	before := contents(t, from)
	for _, add := range []labels.Labels{
		labels.FromStrings("Z", "x"), labels.FromStrings("b", "x"), labels.FromStrings("d", "x", "f", "y"),
		labels.FromStrings("z", "x"),
	} {
		to := from
		to.Dir = filepath.Join(t.TempDir(), from.ID.String())
		meta, err := from.Label(t.Context(), to.Dir, add)
		if err != nil {
			t.Fatal(err)
		}
		if meta.Stats.NumSamples != from.Meta.Stats.NumSamples || meta.Stats.NumSeries != uint64(len(all)) {
			t.Errorf("with %s, the block has %+v, want the counts of %+v", add, meta.Stats, from.Meta.Stats)
		}
		after := contents(t, to)
		for _, ls := range all {
			if want, got := before[ls.String()], after[With(ls, add).String()]; got != want || want == "" {
				t.Errorf("with %s, series %s has the samples %.200s\nwant %.200s", add, ls, got, want)
			}
		}
		if _, err := os.Stat(filepath.Join(to.Dir, spoolFile)); err == nil {
			t.Error("the spool is left behind")
		}
		sample, err := from.Sample(t.Context(), 20, random, add)
		if err != nil || len(sample) != 20 {
			t.Fatalf("a sample of %d series: %v", len(sample), err)
		}
		for _, s := range sample {
			if text := after[s.Labels.String()]; !strings.Contains(text, fmt.Sprintf("%d=", s.Points[0].T)) {
				t.Errorf("the sample has a series %s with a sample at %d, which the block has not", s.Labels, s.Points[0].T)
			}
		}
	}
}

// A series that has the label keeps it, as it does in a Prometheus with external labels.
func TestAddedLabelsReplaceNone(t *testing.T) {
	from := source(t, t.TempDir(),
		labels.FromStrings("__name__", "m", "cluster", "own"), labels.FromStrings("__name__", "n"))
	to := from
	to.Dir = filepath.Join(t.TempDir(), from.ID.String())
	if _, err := from.Label(t.Context(), to.Dir, labels.FromStrings("cluster", "eu")); err != nil {
		t.Fatal(err)
	}
	got := contents(t, to)
	if len(got) != 2 || got[`{__name__="m", cluster="own"}`] == "" || got[`{__name__="n", cluster="eu"}`] == "" {
		t.Errorf("the series are %v", got)
	}
}

// Two series that differ only in an added label would become one, so the block is refused.
func TestSeriesThatAnAddedLabelMakesTheSame(t *testing.T) {
	from := source(t, t.TempDir(),
		labels.FromStrings("__name__", "m", "cluster", "eu"), labels.FromStrings("__name__", "m"))
	_, err := from.Label(t.Context(), filepath.Join(t.TempDir(), "x"), labels.FromStrings("cluster", "eu"))
	if err == nil || !strings.Contains(err.Error(), `two series have the labels {__name__="m", cluster="eu"}`) {
		t.Errorf("the error is %v", err)
	}
}

// Chunks may reach beyond the time of a block, and overlap, as those of two ingesters. Every sample in the time is
// there once, and a chunk that fits stays as it is.
func TestChunksFit(t *testing.T) {
	chunk := func(times ...int64) chunks.Meta {
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range times {
			app.Append(0, at, float64(at))
		}
		return chunks.Meta{MinTime: times[0], MaxTime: times[len(times)-1], Chunk: c}
	}
	whole := chunk(20, 21)
	got, err := fit([]chunks.Meta{
		whole, chunk(1, 9, 10, 11), chunk(30, 32, 34), chunk(31, 32, 33), chunk(39, 40, 41),
	}, 10, 39)
	if err != nil {
		t.Fatal(err)
	}
	points, err := PointsOf(got)
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for _, p := range points {
		times = append(times, p.T)
	}
	if want := []int64{10, 11, 20, 21, 30, 31, 32, 33, 34, 39}; !slices.Equal(times, want) {
		t.Errorf("the samples are at %d, want %d", times, want)
	}
	if !slices.ContainsFunc(got, func(c chunks.Meta) bool { return c.Chunk == whole.Chunk }) {
		t.Error("a chunk that fits was encoded anew")
	}
	for i := 1; i < len(got); i++ {
		if got[i].MinTime <= got[i-1].MaxTime {
			t.Errorf("chunk %d overlaps the one before", i)
		}
	}
}

// write makes a directory with the metadata of a block.
func write(t *testing.T, dir, name, more string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"ulid":%q,"minTime":1000,"maxTime":2000,"version":1,"compaction":{"level":1}%s}`, name, more)
	if err := os.WriteFile(filepath.Join(dir, name, MetaFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	const a, b, c, d, e = "01JDRSYX5Z8V3M1E0Q6W2T4N7A", "01JDRSYX5Z8V3M1E0Q6W2T4N7B", "01JDRSYX5Z8V3M1E0Q6W2T4N7C",
		"01JDRSYX5Z8V3M1E0Q6W2T4N7D", "01JDRSYX5Z8V3M1E0Q6W2T4N7E"
	bucket := t.TempDir()
	write(t, bucket, a, `,"thanos":{"labels":{"cluster":"eu","__compactor_shard_id__":"1_of_4"},"downsample":{"resolution":300000}}`)
	write(t, bucket, b, "")
	write(t, bucket, c, "")
	write(t, bucket, d, `,"compaction":{"level":2,"parents":[{"ulid":"`+b+`"}]}`)
	// Mimir marks a block in the block, and all marked blocks of a tenant in a directory beside them.
	if err := os.MkdirAll(filepath.Join(bucket, "markers"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(c, DeletionMark): "{}", "bucket-index.json.gz": "x",
		filepath.Join("markers", c+"-"+DeletionMark): "{}"} {
		if err := os.WriteFile(filepath.Join(bucket, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(bucket, e), 0o755); err != nil { // an upload that was broken off
		t.Fatal(err)
	}
	found, err := Find(bucket)
	if err != nil || len(found) != 5 {
		t.Fatalf("found %d blocks, want 5: %v", len(found), err)
	}
	for _, f := range found {
		if f.Replaced != (f.ID.String() == b || f.ID.String() == c) || (f.Err != nil) != (f.ID.String() == e) ||
			(f.Resolution == 5*time.Minute) != (f.ID.String() == a) ||
			f.ID.String() == a && f.External.String() != `{cluster="eu"}` {
			t.Errorf("found %+v", f)
		}
	}
	// Mimir has a directory for each tenant.
	mimir := t.TempDir()
	write(t, filepath.Join(mimir, "team-a"), a, "")
	write(t, filepath.Join(mimir, "team-b"), a, "")
	one := t.TempDir() // as Debian's Prometheus has them
	write(t, filepath.Join(one, "metrics2"), a, "")
	for _, tt := range []struct{ name, dir, want string }{
		{"a bucket of Mimir", mimir, filepath.Join(mimir, "team-a") + ", " + filepath.Join(mimir, "team-b")},
		{"one directory too high", one, "but " + filepath.Join(one, "metrics2") + " has: import that"},
		{"a block", filepath.Join(bucket, a), "is a block itself: give the directory in which it is, " + bucket},
		{"an empty directory", t.TempDir(), "has no blocks"},
	} {
		if _, err := Find(tt.dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want %s", tt.name, err, tt.want)
		}
	}
}

// A compacted block that is marked for deletion, damaged or downsampled is not imported. Then those that it was made of
// must be. Blocks of which a block in between was made are replaced, too.
func TestABlockThatIsLeftOutReplacesNone(t *testing.T) {
	const from, between, last = "01JDRSYX5Z8V3M1E0Q6W2T4N7A", "01JDRSYX5Z8V3M1E0Q6W2T4N7B", "01JDRSYX5Z8V3M1E0Q6W2T4N7C"
	of := func(parent string) string { return `,"compaction":{"level":2,"parents":[{"ulid":"` + parent + `"}]}` }
	for _, c := range []struct {
		name, more, mark, replaced string
	}{
		{name: "usable", more: of(between), replaced: from + " " + between},
		{name: "marked for deletion", more: of(between), mark: last, replaced: from + " " + last},
		{name: "marked in between", more: of(between), mark: between, replaced: from + " " + between},
		{name: "damaged", more: of(between) + `,"version":2`, replaced: from},
		{name: "downsampled", more: of(between) + `,"thanos":{"downsample":{"resolution":300000}}`, replaced: from},
	} {
		bucket := t.TempDir()
		write(t, bucket, from, "")
		write(t, bucket, between, of(from))
		write(t, bucket, last, c.more)
		if c.mark != "" {
			if err := os.WriteFile(filepath.Join(bucket, c.mark, DeletionMark), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		found, err := Find(bucket)
		if err != nil {
			t.Fatal(err)
		}
		if got := replacedOf(found); got != c.replaced {
			t.Errorf("%s: replaced are %q, want %q", c.name, got, c.replaced)
		}
	}
}

// Mimir splits a block by series. Each of the new blocks names the old one as its parent and has a part of its series.
// If one of them was lost or cannot be used, the rest of the series is in the old block only.
func TestAShardAloneReplacesNone(t *testing.T) {
	const whole, one, two, merged, another = "01JDRSYX5Z8V3M1E0Q6W2T4N7A", "01JDRSYX5Z8V3M1E0Q6W2T4N7B",
		"01JDRSYX5Z8V3M1E0Q6W2T4N7C", "01JDRSYX5Z8V3M1E0Q6W2T4N7D", "01JDRSYX5Z8V3M1E0Q6W2T4N7E"
	of := func(shard, parents string) string {
		return `,"thanos":{"labels":{"__compactor_shard_id__":"` + shard + `"}},"compaction":{"parents":[{"ulid":"` +
			strings.ReplaceAll(parents, " ", `"},{"ulid":"`) + `"}]}`
	}
	first, second := of("1_of_2", whole), of("2_of_2", whole)
	for _, c := range []struct {
		name     string
		blocks   map[string]string
		replaced string
	}{
		{"both shards", map[string]string{one: first, two: second}, whole},
		{"a shard is missing", map[string]string{one: first}, ""},
		{"the same shard twice", map[string]string{one: first, two: first}, ""},
		{"a shard is damaged", map[string]string{one: first, two: second + `,"version":2`}, ""},
		{"a shard of another split", map[string]string{one: first, two: of("2_of_2", another)}, ""},
		{"a shard of another number", map[string]string{one: first, two: of("2_of_3", whole)}, ""},
		{"no shard is named", map[string]string{one: of("9_of_2", whole), two: second}, ""},
		{"a shard was compacted once more", map[string]string{one: first, two: second, merged: of("2_of_2", two)},
			whole + " " + two},
		{"a damaged shard was compacted before", map[string]string{one: first, two: second + `,"version":2`,
			merged: of("2_of_2", two)}, whole + " " + two},
		{"both were compacted, and one of the results is missing", map[string]string{one: first, two: second,
			merged: of("1_of_2", one)}, whole + " " + one},
		{"both were compacted, and are gone", map[string]string{merged: of("1_of_2", one), another: of("2_of_2", two)}, ""},
	} {
		if got := replacedBeside(t, whole, c.blocks); got != c.replaced {
			t.Errorf("%s: replaced are %q, want %q", c.name, got, c.replaced)
		}
	}
}

// Cortex splits blocks by series, too, and says so elsewhere: all partitions of a compaction have its group and the
// time at which it began. When they are compacted into fewer ones, each has parents of its own. Each once counted as a
// whole block: while Cortex compacted, the import left out the old block, and with it the partitions still to come.
func TestAPartitionAloneReplacesNone(t *testing.T) {
	const whole, one, two, a, b = "01JDRSYX5Z8V3M1E0Q6W2T4N7A", "01JDRSYX5Z8V3M1E0Q6W2T4N7B",
		"01JDRSYX5Z8V3M1E0Q6W2T4N7C", "01JDRSYX5Z8V3M1E0Q6W2T4N7D", "01JDRSYX5Z8V3M1E0Q6W2T4N7E"
	of := func(id, count, group, created int, parent string) string {
		return fmt.Sprintf(`,"thanos":{"labels":{"__org_id__":"team"},"extensions":{"partition_info":{"partition_id":%d,`+
			`"partition_count":%d,"partitioned_group_id":%d,"partitioned_group_creation_time":%d},"time_range":7200000}},`+
			`"compaction":{"parents":[{"ulid":%q}]}`, id, count, group, created, parent)
	}
	for _, c := range []struct {
		name     string
		blocks   map[string]string
		replaced string
	}{
		{"one partition of one", map[string]string{one: of(0, 1, 7, 1000, whole)}, whole},
		{"both partitions", map[string]string{one: of(0, 2, 7, 1000, whole),
			two: of(1, 2, 7, 1000, whole)}, whole},
		{"a partition is missing", map[string]string{two: of(1, 2, 7, 1000, whole)}, ""},
		{"a partition of another compaction", map[string]string{one: of(0, 2, 7, 1000, whole),
			two: of(1, 2, 7, 2000, whole)}, ""},
		{"a partition of another time", map[string]string{one: of(0, 2, 7, 1000, whole),
			two: of(1, 2, 8, 1000, whole)}, ""},
		{"partitions with parents of their own", map[string]string{one: of(0, 4, 7, 1000, "01JDRSYX5Z8V3M1E0Q6W2T4N7F"),
			two: of(1, 4, 7, 1000, "01JDRSYX5Z8V3M1E0Q6W2T4N7F"), a: of(0, 2, 9, 1000, one),
			b: of(1, 2, 9, 1000, two)},
			one + " " + two},
		{"no partition has this number", map[string]string{one: of(2, 2, 7, 1000, whole),
			two: of(1, 2, 7, 1000, whole)}, ""},
	} {
		if got := replacedBeside(t, whole, c.blocks); got != c.replaced {
			t.Errorf("%s: replaced are %q, want %q", c.name, got, c.replaced)
		}
	}
}

// replacedBeside returns the names of replaced blocks in a bucket with one block, and others that have more in their
// meta.json.
func replacedBeside(t *testing.T, one string, others map[string]string) string {
	t.Helper()
	bucket := t.TempDir()
	write(t, bucket, one, "")
	for id, more := range others {
		write(t, bucket, id, more)
	}
	found, err := Find(bucket)
	if err != nil {
		t.Fatal(err)
	}
	return replacedOf(found)
}

// replacedOf returns the names of replaced blocks.
func replacedOf(found []Block) string {
	var replaced []string
	for _, b := range found {
		if b.Replaced {
			replaced = append(replaced, b.ID.String())
		}
	}
	slices.Sort(replaced)
	return strings.Join(replaced, " ")
}

// A directory of blocks may be made of links to them.
func TestPackALinkedBlock(t *testing.T) {
	from := source(t, t.TempDir(), labels.FromStrings("__name__", "m"))
	link := filepath.Join(t.TempDir(), from.ID.String())
	if err := os.Symlink(from.Dir, link); err != nil {
		t.Fatal(err)
	}
	want, err := Bytes(from.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Bytes(link); err != nil || got != want || got == 0 {
		t.Errorf("the linked block has %d bytes, want %d: %v", got, want, err)
	}
}

func TestPack(t *testing.T) {
	from := source(t, t.TempDir(), labels.FromStrings("__name__", "m"))
	if err := os.WriteFile(filepath.Join(from.Dir, DeletionMark), nil, 0o644); err != nil { // does not belong to the block
		t.Fatal(err)
	}
	bytesOf, err := Bytes(from.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := Pack(&archive, from.Dir); err != nil {
		t.Fatal(err)
	}
	to := from
	to.Dir = t.TempDir()
	if err := Unpack(bytes.NewReader(archive.Bytes()), to.Dir, bytesOf); err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, to), contents(t, from); len(got) != 1 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("unpacked %.200v\nwant %.200v", got, want)
	}
	if err := Unpack(bytes.NewReader(archive.Bytes()), t.TempDir(), bytesOf-1); err != errTooLarge {
		t.Errorf("one byte more than announced: %v", err)
	}
	if err := Unpack(bytes.NewReader(archive.Bytes()[:archive.Len()/2]), t.TempDir(), bytesOf); err == nil {
		t.Error("half an archive is no error")
	}
}

// An archive comes from outside: whatever it has, it writes only files of a block, and no more bytes than announced.
func FuzzUnpack(f *testing.F) {
	for _, name := range []string{"meta.json", "../meta.json", "chunks/000001", "chunks/../../x", "/etc/passwd", "index"} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 3}); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		const most = 1000
		root := t.TempDir()
		dir := filepath.Join(root, "a", "block")
		_ = Unpack(bytes.NewReader(archive), dir, most)
		total := int64(0)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			within, err := filepath.Rel(dir, path)
			if err != nil || !member.MatchString(filepath.ToSlash(within)) {
				t.Errorf("wrote %s", path)
			}
			info, err := d.Info()
			if err == nil {
				total += info.Size()
			}
			return err
		})
		if err != nil || total > most {
			t.Errorf("wrote %d bytes: %v", total, err)
		}
	})
}

// A block without a series is no block: no directory is left.
func TestABlockWithoutSamples(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w, err := NewWriter(dir, ulid.ULID{1}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if meta, err := w.Close(t.Context()); err != nil || meta.Stats.NumSeries != 0 {
		t.Errorf("closing an empty block: %+v, %v", meta, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
}
