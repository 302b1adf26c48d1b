package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// fakeStore answers listings and reads as S3 does, of the bucket metrics.
type fakeStore struct {
	objects map[string]string
	refuse  func(w http.ResponseWriter, key string) bool // answers in place of an object
	mu      sync.Mutex
	got     []string // keys
}

func (s *fakeStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, within := strings.CutPrefix(r.URL.Path, "/metrics/")
	switch {
	case !within && r.URL.Path != "/metrics":
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `<Error><Code>NoSuchBucket</Code></Error>`)
		return
	case r.URL.Query().Has("list-type"):
		s.list(w, r.URL.Query().Get("prefix"), r.URL.Query().Get("delimiter"))
		return
	}
	s.mu.Lock()
	s.got = append(s.got, key)
	s.mu.Unlock()
	if s.refuse != nil && s.refuse(w, key) {
		return
	}
	text, has := s.objects[key]
	if !has {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `<Error><Code>NoSuchKey</Code></Error>`)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

func (s *fakeStore) list(w http.ResponseWriter, prefix, delimiter string) {
	var all strings.Builder
	last := ""
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, below := strings.CutPrefix(key, prefix)
		folder, _, inFolder := strings.Cut(rest, "/")
		switch {
		case !below:
		case delimiter == "" || !inFolder:
			fmt.Fprintf(&all, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", key, len(s.objects[key]))
		case folder != last:
			last = folder
			fmt.Fprintf(&all, "<CommonPrefixes><Prefix>%s%s/</Prefix></CommonPrefixes>", prefix, folder)
		}
	}
	fmt.Fprintf(w, "<ListBucketResult><Name>metrics</Name>%s</ListBucketResult>", all.String())
}

// asked returns the keys that were read, without metadata, sorted.
func (s *fakeStore) asked() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.got {
		if !strings.HasSuffix(key, "/meta.json") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// add puts a block with metadata alone into the store. Its other files are no block's.
func (s *fakeStore) add(prefix, id, more string) {
	maps.Copy(s.objects, map[string]string{
		prefix + id + "/meta.json": fmt.Sprintf(`{"ulid":%q,"minTime":1000,"maxTime":2000,"version":1%s}`, id, more),
		prefix + id + "/index":     "index of " + id, prefix + id + "/chunks/000001": "chunks of " + id,
		prefix + id + "/no-compact-mark.json": "{}", // is no file of a block
	})
}

// addWhole puts a real block into the store.
func (s *fakeStore) addWhole(t *testing.T, prefix string) (id string) {
	t.Helper()
	dir := t.TempDir()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 2*time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	if _, err := app.Append(0, labels.FromStrings("__name__", "m"), 1000, 1); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	block, err := w.Flush(context.Background())
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(dir), block.String(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		s.objects[prefix+path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return block.String()
}

// fromBucket imports from the store into a server that has a block, and refuses others as if its disk were full. It
// checks that nothing is left in the directory for downloads.
func (s *fakeStore) fromBucket(t *testing.T, address, has string, more ...string) (code int, told string) {
	t.Helper()
	return s.fromBucketUntil(t, t.Context(), address, has, more...)
}

func (s *fakeStore) fromBucketUntil(t *testing.T, ctx context.Context, address, has string, more ...string) (
	code int, told string,
) {
	t.Helper()
	store := httptest.NewServer(s)
	defer store.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			data := fmt.Sprintf(`{"tenant":"default","blocks":[{"block":%q}]}`, has)
			if has == "" {
				data = `{"tenant":"team","blocks":[],"unknown":true}`
			}
			fmt.Fprintf(w, `{"status":"success","data":%s}`, data)
			return
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		io.WriteString(w, `{"status":"error","errorType":"unavailable","error":"no room"}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2",
		"AWS_CONFIG_FILE": filepath.Join(dir, "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "none"),
		"AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_MAX_ATTEMPTS": "1"} {
		t.Setenv(name, value)
	}
	var out, notes strings.Builder
	code = execute(ctx, append([]string{"import", "tsdb", address, "--s3-endpoint", store.URL, "--server", server.URL,
		"--work-dir", dir}, more...), &out, &notes)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	told = out.String() + notes.String()
	if strings.Contains(told, "hunter2") {
		t.Errorf("the output has a secret:\n%s", told)
	}
	return code, told
}

const (
	blockA = "01JDRSYX5Z8V3M1E0Q6W2T4N7A"
	blockB = "01JDRSYX5Z8V3M1E0Q6W2T4N7B"
	blockC = "01JDRSYX5Z8V3M1E0Q6W2T4N7C"
	blockD = "01JDRSYX5Z8V3M1E0Q6W2T4N7D"
)

// Chunks cost money and time: those of blocks that are known, replaced or marked are not read.
func TestOnlyBlocksThatAreMissingAreDownloaded(t *testing.T) {
	s := &fakeStore{objects: map[string]string{"team/markers/x": "", "team/" + blockD + "/chunks/000001": "a part"}}
	s.add("team/", blockA, "")
	s.add("team/", blockB, `,"compaction":{"level":2,"parents":[{"ulid":"`+blockA+`"}]}`)
	s.add("team/", blockC, "")
	s.objects["team/"+blockC+"/deletion-mark.json"] = "{}"
	code, told := s.fromBucket(t, "s3://metrics/team/", blockB)
	if code != command.OK || len(s.asked()) > 0 {
		t.Errorf("exit code %d, and %q were read", code, s.asked())
	}
	for _, want := range []string{"1 block in s3://metrics/team, 0 B to send", blockB + "  was imported before",
		"2 blocks left out, since others replace them, or they are marked for deletion: " + blockA + ", " + blockC,
		"1 block left out without meta.json, which is uploaded last and deleted first: " + blockD} {
		if !strings.Contains(told, want) {
			t.Errorf("the output has no %q:\n%s", want, told)
		}
	}
}

// A block that was imported before keeps the labels that it got then. With others for the rest, a metric would be two
// series, and no word of it.
func TestBlocksThatKeepTheLabelsOfTheirFirstImport(t *testing.T) {
	s := &fakeStore{objects: map[string]string{}}
	s.add("", blockB, "")
	for _, c := range []struct {
		name string
		args []string
		has  string // of the blocks in the bucket, or another one
		tell string // after the blocks
	}{
		{"no labels", nil, blockB, ""},
		{"a label", []string{"--label", "cluster=us"}, blockB, "freshet import remove BLOCK for each"},
		{"no external labels", []string{"--no-external-labels"}, blockB, "freshet import remove BLOCK for each"},
		{"a tenant", []string{"--label", "cluster=us", "--tenant", "team"}, blockB,
			"freshet import remove BLOCK --tenant team for each"},
		{"a label, and nothing was imported", []string{"--label", "cluster=us"}, blockC, ""},
	} {
		_, told := s.fromBucket(t, "s3://metrics", c.has, c.args...)
		want := "stay in 1 block that the server has: " + blockB + "; if they were others, run " + c.tell
		if strings.Contains(told, "labels of the first import") != (c.tell != "") ||
			c.tell != "" && strings.Count(told, want) != 1 {
			t.Errorf("%s: want %q once if anything:\n%s", c.name, c.tell, told)
		}
	}
}

// A mistake in the name of a tenant hides what is imported from everybody.
func TestAnImportIntoANewTenantSaysSo(t *testing.T) {
	s := &fakeStore{objects: map[string]string{}}
	s.add("", blockB, "")
	for _, c := range []struct {
		name string
		args []string
		has  string // the block that the server has of the tenant; none: it does not know the tenant
		says bool
	}{
		{"new", []string{"--tenant", "team"}, "", true},
		{"known", []string{"--tenant", "team"}, blockB, false},
		{"that of the address", nil, "", false},
	} {
		_, told := s.fromBucket(t, "s3://metrics", c.has, c.args...)
		if strings.Contains(told, "note: the tenant team is new: ") != c.says {
			t.Errorf("%s: want a note: %v\n%s", c.name, c.says, told)
		}
	}
}

// A block that cannot be read costs no other one. What the bucket refuses, or a server without room, ends the import
// before more is downloaded.
func TestWhatEndsAnImportFromABucket(t *testing.T) {
	denied := func(w http.ResponseWriter, key string) bool {
		if strings.Contains(key, "/chunks/") {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `<Error><Code>AccessDenied</Code></Error>`)
			return true
		}
		return false
	}
	gone := func(w http.ResponseWriter, key string) bool {
		if strings.HasPrefix(key, blockA) && !strings.HasSuffix(key, "meta.json") {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `<Error><Code>NoSuchKey</Code></Error>`)
			return true
		}
		return false
	}
	for _, c := range []struct {
		name   string
		refuse func(http.ResponseWriter, string) bool
		code   int
		tells  string
		reads  string // of the last block
	}{
		{"no right to read", denied, command.Usage, "encrypts the objects; run the command again to go on", ""},
		{"deleted meanwhile", gone, command.Failure, "2 blocks not imported: " + blockA + ", " + blockB, blockB + "/index"},
	} {
		s := &fakeStore{objects: map[string]string{}, refuse: c.refuse}
		s.add("", blockA, "")
		s.add("", blockB, "")
		code, told := s.fromBucket(t, "s3://metrics", blockC)
		if code != c.code || !strings.Contains(told, c.tells) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.name, code, c.code, c.tells, told)
		}
		if last := s.asked()[len(s.asked())-1]; c.reads == "" && strings.HasPrefix(last, blockB) ||
			c.reads != "" && last != c.reads {
			t.Errorf("%s: %q were read", c.name, s.asked())
		}
	}
	s := &fakeStore{objects: map[string]string{}}
	first, second := s.addWhole(t, "team/"), s.addWhole(t, "team/")
	if second < first { // both are of the same millisecond
		first, second = second, first
	}
	code, told := s.fromBucket(t, "s3://metrics/team", blockC)
	if code != command.Failure || !strings.Contains(told, first+": unavailable: no room; run the command again to go on") {
		t.Errorf("a server without room: exit code %d:\n%s", code, told)
	}
	if all := strings.Join(s.asked(), " "); strings.Contains(all, second) || !strings.Contains(all, first) {
		t.Errorf("a server without room: %s were read", all)
	}
	code, told = s.fromBucket(t, "s3://metrics/team", blockC, "--label", "cluster=eu")
	if code != command.Failure || !strings.Contains(told, "no room") {
		t.Errorf("a server without room, with labels: exit code %d:\n%s", code, told)
	}
}

// tsdb says of a damaged index "read TOC: read TOC: invalid checksum", and the server of a list in it "invalid
// checksum". Both mean a file that somebody has to replace.
func TestADamagedFileIsNamed(t *testing.T) {
	const want = "  failed: its file index is damaged: "
	s := &fakeStore{objects: map[string]string{}}
	id := s.addWhole(t, "")
	whole := s.objects[id+"/index"]
	s.objects[id+"/index"] = whole[:len(whole)-1] + "?"
	if code, told := s.fromBucket(t, "s3://metrics", blockC); code != command.Failure || !strings.Contains(told, id+want) {
		t.Errorf("exit code %d, want %q:\n%s", code, want, told)
	}

	server, _ := answering(t, http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"invalid checksum"}`)
	none := []string(nil)
	b := blocks.Block{ID: ulid.MustParse(id), Dir: filepath.Join(t.TempDir(), id)}
	for name, text := range s.objects {
		path := filepath.Join(filepath.Dir(b.Dir), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for at := range whole { // some bytes only the server reads
		text := []byte(whole)
		text[at] ^= 0xff
		if err := os.WriteFile(filepath.Join(b.Dir, "index"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sample(t.Context(), b, labels.EmptyLabels()); err != nil {
			continue
		}
		i := &importTSDB{flags: importFlags{add: &none}}
		err := i.send(t.Context(), &upload{server: apiclient.Server{Address: server}}, b, labels.EmptyLabels())
		if err != nil && strings.Contains(err.Error(), "its file index is damaged: ") {
			found++
		} else if err == nil || !strings.Contains(err.Error(), "bad_data: invalid checksum") {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
	if found == 0 {
		t.Error("a block that only the server finds damaged has no name of a file")
	}
}

// A command that is interrupted in the middle of a download leaves nothing in --work-dir.
func TestAnInterruptedDownloadIsRemoved(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &fakeStore{objects: map[string]string{}, refuse: func(w http.ResponseWriter, key string) bool {
		if !strings.Contains(key, "/chunks/") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len("chunks of "+blockA)))
		io.WriteString(w, "chunks")
		http.NewResponseController(w).Flush()
		cancel()
		return true
	}}
	s.add("", blockA, "")
	s.add("", blockB, "")
	code, told := s.fromBucketUntil(t, ctx, "s3://metrics", blockC)
	if code != command.Failure || !strings.Contains(told, "context canceled; run the command again to go on") ||
		strings.Contains(strings.Join(s.asked(), " "), blockB) {
		t.Errorf("exit code %d, and %q were read:\n%s", code, s.asked(), told)
	}
}

// A path in the store may be one that leads out of the directory.
func TestOnlyFilesOfABlockAreDownloaded(t *testing.T) {
	s := &fakeStore{objects: map[string]string{}}
	s.add("", blockA, "")
	s.objects[blockA+"/chunks/../../../evil"] = "evil"
	s.objects[blockA+"/visits.json"] = "{}"
	_, told := s.fromBucket(t, "s3://metrics", blockC)
	if want := []string{blockA + "/chunks/000001", blockA + "/index"}; !slices.Equal(s.asked(), want) {
		t.Errorf("%q were read, want %q:\n%s", s.asked(), want, told)
	}
}

func TestPlacesWithoutBlocks(t *testing.T) {
	s := &fakeStore{objects: map[string]string{"file": "", "team-c/x": ""}}
	s.add("team-a/", blockA, "")
	s.add("team-b/", blockA, "")
	s.add("below/it/", blockA, "")
	for _, c := range []struct{ address, want string }{
		{"s3://metrics", "each of a tenant: s3://metrics/team-a, s3://metrics/team-b; import one after the other"},
		{"s3://metrics/below", "s3://metrics/below has no blocks, but s3://metrics/below/it has: import that"},
		{"s3://metrics/team-a/" + blockA, "is a block itself: give the directory in which it is, s3://metrics/team-a"},
		{"s3://metrics/none/", "import s3://metrics/none/: s3://metrics/none has no blocks: a block is a directory"},
		{"s3://other/none", "list s3://other/none/: NoSuchBucket; "},
	} {
		if code, told := s.fromBucket(t, c.address, blockC); code != command.Usage || !strings.Contains(told, c.want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", c.address, code, c.want, told)
		}
	}
}

// Whatever is no bucket of S3 is refused with what to do, and without a part that may be a secret.
func TestAddressesThatAreNoBucket(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"s3://key:hunter2@metrics/team-a", "AWS_SECRET_ACCESS_KEY"},
		{"s3://key:hunter2/x@metrics/team-a", "AWS_SECRET_ACCESS_KEY"},
		{"s3://key:123/hunter2@metrics/team-a", "AWS_SECRET_ACCESS_KEY"},
		{"s3://key@metrics", "AWS_SECRET_ACCESS_KEY"},
		{"s3://minio:9000/metrics", "--s3-endpoint"},
		{"s3://metrics?secret=hunter2", "s3://BUCKET/PREFIX"},
		{"s3://metrics/team-a?secret=hunter2", "s3://BUCKET/PREFIX"},
		{"s3:///team-a", "s3://BUCKET/PREFIX"},
		{"s3://x", "has 3 to 63 characters"},
		{"s3://ab/team-a", "has 3 to 63 characters"},
		{"gs://metrics/team-a", "--s3-endpoint https://storage.googleapis.com"},
		{"az://metrics/team-a", "rclone"},
		{"https://key:hunter2@metrics.s3.amazonaws.com", "--s3-endpoint"},
	} {
		code, _, told := freshet(t, "import", "tsdb", c.address)
		if code != command.Usage || !strings.Contains(told, c.want) || strings.Contains(told, "hunter2") {
			t.Errorf("%s: exit code %d, want one line with %s: %s", c.address, code, c.want, told)
		}
	}
	if code, _, told := freshet(t, "import", "tsdb", t.TempDir(), "--s3-endpoint", "http://127.0.0.1:1"); code !=
		command.Usage || !strings.Contains(told, "not for a directory") {
		t.Errorf("a directory with an endpoint: exit code %d: %s", code, told)
	}
}
