package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
	"github.com/freshet-io/freshet/lab/repository"
)

// diskPart is the name of this part in -only.
const diskPart = "disk"

const (
	// rawTime is how much time the samples of remote write span. It begins at midnight. The blocks of the first six
	// hours are merged then, and the last two hours are in no block yet.
	rawTime = 12 * time.Hour

	// diskSettles is the longest wait for the blocks of a database.
	diskSettles = time.Minute
)

// diskSteps returns the steps of the part disk.
func (l *lab) diskSteps() (steps []step) {
	part := &report.Figures{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion()}
	for _, p := range l.tsdbs {
		part.Versions = append(part.Versions, report.Version{Name: p.Name, Version: p.Version})
	}
	l.results.Disk = part
	load := remoteload.Standard()
	load.Name, load.Series = "disk", 5000
	load.Begin = time.Now().Truncate(day).Add(-day).UnixMilli()
	if l.brief {
		load.Series /= 10
	}
	for _, d := range l.databases() {
		steps = append(steps, step{what: "disk: raw samples of " + d.name, takes: time.Minute,
			do: func(ctx context.Context) error { return l.tolerateDisk(ctx, d, l.rawDisk(ctx, d, load)) }})
	}
	return append(steps, step{what: "disk: tiles", takes: time.Minute, do: l.tilesDisk})
}

// tolerateDisk leaves out a peer that has failed.
func (l *lab) tolerateDisk(ctx context.Context, d database, err error) error {
	if err == nil || d.group != report.Peer || ctx.Err() != nil {
		return err
	}
	l.leaveOut("disk, %s: %v", d.name, err)
	return nil
}

// rawDisk writes samples to a database, and measures its files once it has stopped.
func (l *lab) rawDisk(ctx context.Context, d database, load remoteload.Config) error {
	dir := filepath.Join(l.dir, "disk-"+d.name)
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	p, err := d.start(ctx, dir)
	if err != nil {
		return err
	}
	if err := errors.Join(p.fill(ctx, load), p.stop()); err != nil {
		return err
	}
	written := uint64(load.Series) * uint64(rawTime.Milliseconds()/load.Interval)
	u, err := filesOf(dir, written)
	if err != nil {
		return err
	}
	l.addDisk("raw samples, one each 15 s", d.name, float64(u.chunks)/float64(u.samples),
		float64(u.index)/float64(u.samples), 0)
	return nil
}

// fill writes all samples of a load, and waits until the database has made its blocks.
func (p *runningDatabase) fill(ctx context.Context, load remoteload.Config) error {
	w, err := p.writer(load, writeConnections)
	if err != nil {
		return err
	}
	rounds := int(rawTime.Milliseconds() / load.Interval)
	r, _, err := p.write(ctx, w, rounds)
	if err == nil && r.Written != uint64(rounds*load.Series) {
		err = fmt.Errorf("wrote %d of %d samples: %s", r.Written, rounds*load.Series, r.Refused)
	}
	if err != nil {
		return err
	}
	return p.settle(ctx, diskSettles)
}

// addDisk adds the bytes a sample of a database. The bound is for the index; 0: none.
func (l *lab) addDisk(what, database string, chunks, index, must float64) {
	unit := database + ": bytes a sample, "
	l.results.Disk.Add(report.Figure{What: what, Unit: unit + "times and values", Runs: []float64{chunks}})
	l.results.Disk.Add(report.Figure{What: what, Unit: unit + "index", Must: must, Runs: []float64{index}})
}

// diskUse is what samples take on disk, in bytes.
type diskUse struct {
	samples       uint64
	index, chunks int64
}

// filesOf adds up the files of a stopped database. For databases with blocks, only samples in blocks count.
// VictoriaMetrics has no blocks, and then all samples that were written do.
func filesOf(dir string, written uint64) (u diskUse, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch parent := filepath.Base(filepath.Dir(path)); {
		case d.Name() == "meta.json":
			return u.addSamples(path)
		case parent == "chunks", d.Name() == "timestamps.bin", d.Name() == "values.bin":
			u.chunks += info.Size()
		case d.Name() == "index", d.Name() == "index.bin", d.Name() == "metaindex.bin",
			strings.Contains(path, "/indexdb/"):
			u.index += info.Size()
		}
		return nil
	})
	if u.samples == 0 {
		u.samples = written
	}
	if err == nil && (u.chunks == 0 || u.index == 0) {
		err = fmt.Errorf("%s: has no blocks", dir)
	}
	return u, err
}

// addSamples adds the samples of a block.
func (u *diskUse) addSamples(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var meta struct {
		Stats struct {
			NumSamples uint64 `json:"numSamples"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	u.samples += meta.Stats.NumSamples
	return nil
}

// weekIndex bounds the index of a week of tiles of a minute, in bytes a sample: as much was measured in young blocks.
const weekIndex = .68

// tilesDisk measures tiles of some days. Tiles follow the clock of a server, so a Go benchmark writes them to a store.
func (l *lab) tilesDisk(ctx context.Context) error {
	root, err := repository.Dir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-C", root, "-run", "^$", "-bench", "^BenchmarkTilesOnDisk$",
		"-benchtime", "1x", "-timeout", "30m", "./internal/adapter/tsdb")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return l.addTiles(string(out))
}

// addTiles reads the output of the benchmark.
func (l *lab) addTiles(out string) error {
	added := 0
	for line := range strings.Lines(out) {
		found := benchmarkLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		var chunks, index, must float64
		for _, figure := range benchmarkUnit.FindAllStringSubmatch(found[3], -1) {
			value, err := strconv.ParseFloat(figure[1], 64)
			if err != nil {
				return fmt.Errorf("BenchmarkTilesOnDisk: %w", err)
			}
			switch figure[2] {
			case "chunk-bytes/sample":
				chunks = value
			case "index-bytes/sample":
				index = value
			}
		}
		name := words(found[2])
		if name == "1m after 168 h" {
			must = weekIndex
		}
		l.addDisk("tiles of "+name, "Freshet", chunks, index, must)
		added++
	}
	if added == 0 {
		return fmt.Errorf("BenchmarkTilesOnDisk has no figures:\n%s", out)
	}
	return nil
}
