package filler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// Nodes are the other nodes of the cluster.
type Nodes interface {
	// Sources returns the nodes that can give their data, the best first.
	Sources(ctx context.Context) []string
	// Life names the cluster of a node and its recovery epoch. Data of one life are of no use in another one.
	Life(ctx context.Context, from string) (string, error)
	// Copy asks a node to set aside a copy: only what never changes, or everything.
	Copy(ctx context.Context, from string, whole bool) ([]File, error)
	// Fetch hands the pieces of a file to `take`.
	Fetch(ctx context.Context, from string, f File, take func([]byte) error) error
}

// Options are the parts of a Filler. All are required.
type Options struct {
	DataDir string
	Nodes   Nodes
	Rate    int64 // bytes a second; 0 for no limit
	// Check reads everything in a directory that has a copy. It returns the last entry of the copy's log.
	Check func(ctx context.Context, dir string) (last uint64, err error)
	// Room returns an error unless the disk has room for so many more bytes.
	Room   func(bytes int64) error
	Logger *slog.Logger
}

// Filler fills this node. One goroutine calls Fill, Install and Discard.
//
// The files lie in the directory fill until all are there and checked. Files of blocks stay there when a try fails,
// or when the process dies: blocks have names of their own, so the next try goes on with them.
type Filler struct {
	Options
	pace pace

	mu       sync.Mutex
	from     string // the node that gives its data; empty if none does
	base     uint64 // the log must be kept behind this entry; 0 if that is not known
	begun    time.Time
	got      int64 // bytes fetched since begun
	has, of  int64 // bytes of the copy, on disk and altogether
	failures uint64
	failure  string // of the last try that failed
}

// New returns a Filler.
func New(o Options) *Filler { return &Filler{Options: o, pace: pace{rate: o.Rate}} }

// Progress says how far a fill is.
type Progress struct {
	From      string // the node that gives its data
	Has, Of   int64  // bytes
	Took, ETA time.Duration
	Failures  uint64 // tries that failed
	Error     string // of the last one
}

// Progress returns nil if no fill is under way. ETA is negative if it is not known.
func (f *Filler) Progress() *Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun.IsZero() {
		return nil
	}
	p := &Progress{From: f.from, Has: f.has, Of: f.of, Took: time.Since(f.begun), ETA: -1, Failures: f.failures,
		Error: f.failure}
	if f.got > 0 {
		p.ETA = time.Duration(float64(p.Took) * float64(f.of-f.has) / float64(f.got))
	}
	return p
}

// Base returns the entry behind which the other nodes must keep their logs, 0 if that is not known yet.
func (f *Filler) Base() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.base
}

// Path returns the path of a part of the copy, below the directory of the fill.
func (f *Filler) Path(name string) string { return f.path(dataName, filepath.FromSlash(name)) }

// path returns a path below the directory of the fill.
func (f *Filler) path(parts ...string) string {
	return filepath.Join(append([]string{f.DataDir, dirName}, parts...)...)
}

const (
	// AgainFile has what FillAgain and KeepOld write, below the data directory.
	AgainFile = dirName + "/" + againName

	dirName  = "fill"
	dataName = "data"  // the files, below their paths in the data directory
	partName = "part"  // a file that is being fetched
	doneName = "whole" // says that all files are there and checked

	againName = "again" // says that the node had joined before, and what its member must not forget

	// wholeLog is the base while a node copies everything. Only the copy says which entries this node will lack, and
	// with many stores it takes longer than a busy group keeps them. No log begins before this entry.
	wholeLog = 1

	// pause is the time before another try, after no node could give its data.
	pause = 5 * time.Second

	// sayEvery is how often the log tells the progress.
	sayEvery = 10 * time.Second
)

// whole is what the file doneName says.
type whole struct {
	Last uint64 `json:"last"` // the last entry of the copy's log
	Life string `json:"life"` // see Nodes.Life
}

// Last returns the last entry that this node has after a fill, 0 if it was not filled.
func (f *Filler) Last() (uint64, error) {
	w, err := f.whole()
	return w.Last, err
}

// Fits reports whether the data of the fill are of this life: see Nodes.Life. If not, the node must be filled again.
func (f *Filler) Fits(life string) (bool, error) {
	w, err := f.whole()
	if err != nil || w.Life == life {
		return err == nil, err
	}
	return false, f.clear()
}

func (f *Filler) whole() (w whole, err error) {
	err = files.ReadJSON(f.path(doneName), &w)
	if errors.Is(err, fs.ErrNotExist) {
		return whole{}, nil
	}
	if err != nil {
		err = fmt.Errorf("read how far the node is filled: %w; remove the directory %s to fill it again", err, f.path())
	}
	return w, err
}

// Fill gets the data of another node, and tries the nodes one after the other until one has given everything.
func (f *Filler) Fill(ctx context.Context) error {
	f.mu.Lock()
	f.begun, f.got, f.has, f.of, f.base = time.Now(), 0, 0, 0, 0
	f.mu.Unlock()
	for {
		for _, from := range f.Nodes.Sources(ctx) {
			err := f.try(ctx, from)
			if err == nil || ctx.Err() != nil {
				return err
			}
			f.mu.Lock()
			f.failures++
			f.from, f.failure = "", err.Error()
			f.mu.Unlock()
			f.Logger.Error("this node could not be filled; another node is asked", "from", from, "error", err)
		}
		if err := retry.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// try gets the data of one node: first what never changes, which may take hours, and then everything else, as of
// that moment.
func (f *Filler) try(ctx context.Context, from string) error {
	f.mu.Lock()
	f.from, f.base = from, 0
	f.mu.Unlock()
	f.Logger.Info("this node is filled with the data of another node", "from", from)
	if err := f.clear(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go f.say(ctx)
	life, err := f.Nodes.Life(ctx, from)
	if err != nil {
		return err
	}
	for _, everything := range []bool{false, true} {
		if everything {
			f.mu.Lock()
			f.base = wholeLog
			f.mu.Unlock()
		}
		all, err := f.Nodes.Copy(ctx, from, everything)
		if err != nil {
			return err
		}
		if err := f.fetchAll(ctx, from, all, everything); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(f.path(dataName, "tsdb"), 0o750); err != nil { // a cluster without samples has none
		return err
	}
	last, err := f.Check(ctx, f.path(dataName))
	if err != nil {
		// Nothing tells which files are good: they may be damaged at the other node.
		return errors.Join(fmt.Errorf("the data of node %s are damaged: %w", from, err), os.RemoveAll(f.path(dataName)))
	}
	if err := files.SyncDirs(f.path(dataName)); err != nil {
		return err
	}
	if err := f.writeWhole(last, life); err != nil {
		return err
	}
	p := f.Progress()
	f.Logger.Info("this node is filled", "from", from, "bytes", p.Of, "took", p.Took.Round(time.Millisecond))
	return nil
}

// say tells the progress in the log.
func (f *Filler) say(ctx context.Context) {
	for ticker := time.NewTicker(sayEvery); ; {
		select {
		case <-ticker.C:
			p := f.Progress()
			f.Logger.Info("not ready yet: this node is being filled", "from", p.From, "bytes", p.Has, "of_bytes", p.Of,
				"eta", p.ETA.Round(time.Second))
		case <-ctx.Done():
			ticker.Stop()
			return
		}
	}
}

// fetchAll gets the files that are not there yet, and removes all others.
func (f *Filler) fetchAll(ctx context.Context, from string, all []File, everything bool) error {
	sizes, sum := map[string]int64{}, int64(0)
	names := map[string][]string{} // of files, by directory
	for _, file := range all {
		if err := checkName(file.Name); err != nil {
			return err
		}
		if !everything && !isFixed(file.Name) {
			return fmt.Errorf("%w: %s changes, and came too early", errName, file.Name)
		}
		sizes[file.Name] = file.Size
		sum += file.Size
		names[filepath.Dir(file.Name)] = append(names[filepath.Dir(file.Name)], filepath.Base(file.Name))
	}
	has, err := f.keep(sizes)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.has, f.of = 0, sum
	for name := range has {
		f.has += sizes[name]
	}
	for _, c := range checkpoint.Files(names[logPath]) {
		f.base = uint64(c.First)
	}
	lacks := sum - f.has
	f.mu.Unlock()
	if err := f.Room(lacks); err != nil {
		return err
	}
	for _, file := range all {
		if has[file.Name] {
			continue
		}
		if err := f.fetch(ctx, from, file); err != nil {
			return err
		}
	}
	return nil
}

// logPath is the directory of the group's log.
const logPath = "groups/0"

// keep returns the files of a copy that are there already, and removes what else is there. The first list of a try has
// only files that never change, so no others are left from an earlier try.
func (f *Filler) keep(sizes map[string]int64) (has map[string]bool, err error) {
	has = map[string]bool{}
	root := f.path(dataName)
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, err
	}
	var dirs []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		within, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := filepath.ToSlash(within)
		if size, listed := sizes[name]; listed && info.Size() == size {
			has[name] = true
			return nil
		}
		return os.Remove(path)
	})
	for i := len(dirs) - 1; i > 0; i-- {
		_ = os.Remove(dirs[i]) // fails if the directory has files
	}
	return has, err
}

// fetch gets a file. It has its name only once it is on the disk.
func (f *Filler) fetch(ctx context.Context, from string, file File) error {
	target := f.path(dataName, filepath.FromSlash(file.Name))
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	part, err := os.OpenFile(f.path(partName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	got := int64(0)
	err = f.Nodes.Fetch(ctx, from, file, func(b []byte) error {
		if _, err := part.Write(b); err != nil {
			return err
		}
		got += int64(len(b))
		f.mu.Lock()
		f.got += int64(len(b))
		f.has += int64(len(b))
		f.mu.Unlock()
		return f.pace.wait(ctx, len(b))
	})
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err == nil {
		return os.Rename(f.path(partName), target)
	}
	f.mu.Lock()
	f.has -= got
	f.mu.Unlock()
	return err
}

// pace keeps the fetched bytes below a rate.
type pace struct {
	rate int64     // bytes a second; 0 for no limit
	next time.Time // when the next bytes may come
}

// wait waits as long as n bytes may take.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate == 0 {
		return nil
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	return retry.Wait(ctx, p.next.Sub(now))
}
