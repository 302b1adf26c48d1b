package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/bucket"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

const (
	// metasAtOnce is how many blocks' metadata are asked for at once: a store takes some 50 ms for each.
	metasAtOnce = 16

	// metaBytes bounds the metadata of one block. Those of large blocks have some 100 KiB.
	metaBytes = 16 << 20

	// lookedInto bounds the directories that are looked into for blocks if a prefix has none itself.
	lookedInto = 100
)

// blocksInBucket are the blocks below a prefix of a bucket. Each is downloaded when its turn comes, so that the disk
// needs room for one.
type blocksInBucket struct {
	bucket  *bucket.Bucket
	address string // s3://BUCKET/PREFIX
	prefix  string // empty, or with a slash at its end
	workDir string
	notes   io.Writer

	// objects are those of each block, by their names below it.
	objects map[ulid.ULID]map[string]bucket.Object
}

// openBucket returns the blocks at an address such as s3://BUCKET/PREFIX.
func openBucket(ctx context.Context, address, endpoint, workDir string, notes io.Writer) (*blocksInBucket, error) {
	name, prefix, err := bucketOf(address)
	if err != nil {
		return nil, conf.Mistake(err)
	}
	b, err := bucket.Open(ctx, name, endpoint)
	if err != nil {
		return nil, err
	}
	s := &blocksInBucket{bucket: b, address: "s3://" + name, workDir: workDir, notes: notes,
		objects: map[ulid.ULID]map[string]bucket.Object{}}
	if prefix != "" {
		s.address, s.prefix = s.address+"/"+prefix, prefix+"/"
	}
	return s, nil
}

var bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// bucketOf returns the bucket and the prefix, without a slash at its end, of an address. Its errors show no part of
// the address, which may have a secret anywhere.
func bucketOf(address string) (name, prefix string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	switch strings.ToLower(scheme) {
	case "s3":
	case "http", "https":
		return "", "", errors.New("write s3://BUCKET/PREFIX, and the address of the store by --s3-endpoint; of a server " +
			"that answers remote read, freshet import remote-read imports the samples")
	case "gs", "gcs":
		return "", "", errors.New("a bucket of Google is read by the protocol of S3: make an HMAC key there, set " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to it, and write s3://BUCKET/PREFIX with " +
			"--s3-endpoint https://storage.googleapis.com; or copy the bucket by rclone copy, and import the directory")
	default:
		return "", "", errors.New("blocks are read from a directory, or from s3://BUCKET/PREFIX by the protocol of S3: " +
			"copy the bucket by rclone copy, or mount it by rclone mount, and import the directory")
	}
	name, prefix, _ = strings.Cut(rest, "/")
	switch {
	case strings.Contains(rest, "@") && !bucketName.MatchString(name):
		return "", "", errors.New("s3://BUCKET/PREFIX has no credentials, since others see it in the list of processes: " +
			"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	case !bucketName.MatchString(name) || strings.ContainsAny(prefix, "?#"):
		return "", "", errors.New("write s3://BUCKET/PREFIX and nothing else, and the address of the store by --s3-endpoint")
	case len(name) < 3: // some stores have longer names than AWS, and none has shorter ones
		return "", "", errors.New("s3://BUCKET/PREFIX names no bucket: the name of a bucket has 3 to 63 characters")
	}
	return name, strings.Trim(prefix, "/"), nil
}

func (s *blocksInBucket) String() string { return s.address }

// find lists the bucket, and reads the metadata of its blocks.
func (s *blocksInBucket) find(ctx context.Context) ([]blocks.Block, error) {
	line := terminal.NewLine(s.notes)
	defer line.Clear()
	line.Draw("listing " + s.address)
	folders, err := s.bucket.Folders(ctx, s.prefix)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range folders {
		if id, err := ulid.ParseStrict(name); err == nil {
			names = append(names, name)
			s.objects[id] = map[string]bucket.Object{}
		}
	}
	if len(names) == 0 {
		return nil, s.none(ctx, folders)
	}
	// The names of blocks begin with a time, and so alike. Others, such as Mimir's markers, are not listed.
	alike := common(names[0], names[len(names)-1])
	err = s.bucket.List(ctx, s.prefix+alike, func(o bucket.Object) {
		name, file, _ := strings.Cut(strings.TrimPrefix(o.Key, s.prefix), "/")
		id, err := ulid.ParseStrict(name)
		if of := s.objects[id]; err == nil && of != nil {
			of[file] = o
		}
	})
	if err != nil {
		return nil, err
	}
	line.Draw(fmt.Sprintf("reading the metadata of %s in %s", counted(len(names), "block"), s.address))
	all, parts, err := s.describe(ctx)
	line.Clear()
	if len(parts) > 0 {
		fmt.Fprintf(s.notes, "note: %s left out without meta.json, which is uploaded last and deleted first: %s\n",
			counted(len(parts), "block"), joined(parts))
	}
	return all, err
}

// common returns what two names both begin with.
func common(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// none returns the error of a prefix without blocks.
func (s *blocksInBucket) none(ctx context.Context, folders []string) error {
	var others []string
	for _, name := range folders[:min(len(folders), lookedInto)] {
		within, err := s.bucket.Folders(ctx, s.prefix+name+"/")
		if err != nil {
			return err
		}
		if slices.ContainsFunc(within, func(name string) bool { _, err := ulid.ParseStrict(name); return err == nil }) {
			others = append(others, s.address+"/"+name)
		}
	}
	return conf.Mistake(blocks.None(s.address, s.address[:strings.LastIndexByte(s.address, '/')], others))
}

// describe reads the metadata of the blocks that were listed. Parts are those without any: they are not uploaded to the
// end, or are being deleted, which is normal in a bucket that is in use.
func (s *blocksInBucket) describe(ctx context.Context) (all []blocks.Block, parts []string, err error) {
	found := make(chan blocks.Block, len(s.objects))
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(metasAtOnce)
	for id, objects := range s.objects {
		meta, whole := objects[blocks.MetaFile]
		if !whole {
			continue
		}
		if meta.Size > metaBytes {
			err := fmt.Errorf("its meta.json has %s, more than %s", size(meta.Size), size(metaBytes))
			found <- blocks.Block{ID: id, Err: err}
			continue
		}
		readers.Go(func() error {
			text, err := s.bucket.Read(ctx, meta)
			if errors.Is(err, bucket.ErrGone) {
				return nil
			}
			b := blocks.Parse(id, text)
			_, b.Replaced = objects[blocks.DeletionMark]
			if _, has := objects["index"]; !has && b.Err == nil {
				b.Err = errors.New("the bucket does not have its index")
			}
			found <- b
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return nil, nil, err
	}
	close(found)
	described := map[ulid.ULID]bool{}
	for b := range found {
		all = append(all, b)
		described[b.ID] = true
	}
	for id := range s.objects {
		if !described[id] {
			parts = append(parts, id.String())
		}
	}
	slices.Sort(parts)
	slices.SortFunc(all, func(a, b blocks.Block) int { return a.ID.Compare(b.ID) }) // as they are in a directory
	blocks.Order(all)
	return all, parts, nil
}

// filesOf returns the objects that are files of the block.
func (s *blocksInBucket) filesOf(b blocks.Block) (names []string, bytes int64) {
	for name, o := range s.objects[b.ID] {
		if blocks.IsFile(name) {
			names = append(names, name)
			bytes += o.Size
		}
	}
	slices.Sort(names)
	return names, bytes
}

func (s *blocksInBucket) bytes(b blocks.Block) (int64, error) {
	_, n := s.filesOf(b)
	return n, nil
}

// open downloads a block.
func (s *blocksInBucket) open(ctx context.Context, u *upload, b blocks.Block, labelled bool) (
	blocks.Block, func() error, error,
) {
	dir, err := os.MkdirTemp(s.workDir, "freshet-import-")
	if err != nil {
		return b, nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	b.Dir = filepath.Join(dir, b.ID.String())
	err = s.room(dir, b, labelled)
	if err == nil {
		err = s.download(ctx, u, b)
	}
	if err != nil {
		return b, nil, errors.Join(err, remove())
	}
	return b, remove, nil
}

// room returns an error if the disk of a directory has no room for a block.
func (s *blocksInBucket) room(dir string, b blocks.Block, labelled bool) error {
	_, need := s.filesOf(b)
	why := ""
	if labelled {
		need, why = 2*need, ", half of it for a copy with labels"
	}
	space, err := files.SpaceOf(dir)
	if err == nil && space.Free < uint64(need) {
		err = fmt.Errorf("it needs %s in %s%s, and there are %s; name a directory with more room by --work-dir", size(need),
			filepath.Dir(dir), why, size(int64(space.Free)))
	}
	return err
}

func (s *blocksInBucket) download(ctx context.Context, u *upload, b blocks.Block) error {
	names, bytes := s.filesOf(b)
	var came atomic.Int64
	begun := time.Now()
	defer u.show(ctx, func() string {
		return b.ID.String() + "  downloading " + progressText(came.Load(), bytes, time.Since(begun))
	})()
	for _, name := range names {
		path := filepath.Join(b.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		err := s.bucket.Download(ctx, s.objects[b.ID][name], path, func(n int) { came.Add(int64(n)) })
		if err != nil {
			return err
		}
	}
	// A block without samples has none, and is opened only with the directory.
	return os.MkdirAll(filepath.Join(b.Dir, "chunks"), 0o700)
}

// ends reports whether an error ends the import, since the next block would fail, too. It would be downloaded in vain.
func (s *blocksInBucket) ends(err error) bool {
	var refused apiclient.Refused
	return errors.Is(err, bucket.ErrRefused) || errors.As(err, new(*net.OpError)) ||
		errors.As(err, &refused) && refused.Type == "unavailable"
}
