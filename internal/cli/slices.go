package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/remoteread"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// sliceTime is the longest time that one block has. It bounds what is read again after an interruption.
const sliceTime = 24 * time.Hour

// span is which samples are read from a server.
type span struct {
	from, to int64 // Unix milliseconds; `to` is exclusive
	match    string
	matchers []*labels.Matcher
}

type spanFlags struct {
	from, to *time.Time
	match    *string
}

// newSpanFlags adds the flags. Without --to, samples end at `end`.
func newSpanFlags(flags *pflag.FlagSet, end string) spanFlags {
	return spanFlags{
		from: command.TimeFlag(flags, "from",
			"`instant` of the first samples: Unix seconds or 2006-01-02T15:04:05Z (required)"),
		to:    command.TimeFlag(flags, "to", "`instant` before which the samples end, in the same form (default "+end+")"),
		match: flags.String("match", `{__name__!=""}`, "`selector` of the series"),
	}
}

// span returns what the flags say. Without --to it ends at `end`, and at `now` at the latest.
func (f spanFlags) span(now, end time.Time) (s span, err error) {
	to := end
	if !f.to.IsZero() {
		to = *f.to
	}
	if now.Before(to) {
		to = now
	}
	s = span{from: f.from.UnixMilli(), to: to.UnixMilli(), match: *f.match}
	switch {
	case f.from.IsZero():
		return s, conf.Mistake(errors.New("--from is missing: give the time of the first samples"))
	case s.from >= s.to:
		return s, conf.Mistake(fmt.Errorf("--from must be before --to and before now; without --to, samples end at %s UTC",
			minute(end.UnixMilli())))
	}
	if s.matchers, err = parser.NewParser(parser.Options{}).ParseMetricSelector(s.match); err != nil {
		return s, conf.Mistake(fmt.Errorf("--match %s: %w", s.match, err))
	}
	return s, nil
}

// slice is a part of a span, which becomes one block: a day in UTC, or less at the ends of the span.
type slice struct {
	id       ulid.ULID
	from, to int64
	of       span
	source   string
}

// slices cuts a span. The source has everything else that decides about the samples.
func (s span) slices(source string) (all []slice) {
	day := sliceTime.Milliseconds()
	for from := s.from; from < s.to; {
		to := min(s.to, from-from%day+day)
		all = append(all, s.slice(source, from, to))
		from = to
	}
	return all
}

// slice returns one part of a span. The name of its block depends on all that decides about the samples: the same
// command names the same blocks, and goes on where it was interrupted. Of secrets in the source, the name has a hash
// only.
func (s span) slice(source string, from, to int64) slice {
	one := slice{from: from, to: to, of: s, source: source}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", source, s.match, from, to))
	copy(one.id[6:], sum[:])                 // in place of random bytes
	_ = one.id.SetTime(uint64(max(0, from))) // fails only after the year 10889
	return one
}

// begins reports whether a block is the beginning of the slice, from the same source: an earlier run read it when the
// day was not over.
func (s slice) begins(b answer.HistoryBlock) bool {
	return b.MinTime == s.from && b.MaxTime < s.to && s.of.slice(s.source, b.MinTime, b.MaxTime).id.String() == b.Block
}

// read reads the slice from a server, and writes it as a block to a new directory. `add` are labels for each series. A
// slice without samples leaves no directory.
func (s slice) read(ctx context.Context, post remoteread.Post, add labels.Labels, dir string) (blocks.Block, error) {
	b := blocks.Block{Dir: dir, ID: s.id}
	w, err := blocks.NewWriter(dir, s.id, s.from, s.to)
	if err != nil {
		return b, err
	}
	err = remoteread.Read(ctx, post, s.from, s.to-1, s.of.matchers, func(ls labels.Labels, all []chunks.Meta) error {
		return w.Add(blocks.With(ls, add), all)
	})
	if err != nil {
		return b, errors.Join(readError{err}, w.Abandon())
	}
	if b.Meta, err = w.Close(ctx); err != nil {
		return b, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

// String returns the time of the slice.
func (s slice) String() string { return minute(s.from) + " to " + minute(s.to) }

// readError is an error of reading a slice from a server, not of what becomes of it then.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// remedies say what to do about a server that cannot be read.
type remedies struct {
	refused string // it refuses the request, and would again
	denied  string // it wants other credentials
	down    string // nothing listens at the address, which may never have been right
}

// goOn adds to an error of a slice what to do. Another run goes on behind the slices that are there: it helps against
// what can pass. `some` says that there are such slices, so that the address was right then.
func (r remedies) goOn(err error, some bool) error {
	var read readError
	var answer remoteread.AnswerError
	var connect *net.OpError
	switch isRead := errors.As(err, &read); {
	case errors.As(err, new(conf.MistakeError)):
		return err
	case isRead && errors.As(read.error, &answer) && answer.Lasts():
		do := r.refused
		if answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden {
			do = r.denied
		}
		return conf.Mistake(fmt.Errorf("%w; %s", err, do))
	case isRead && !some && errors.As(read.error, &connect) && connect.Op == "dial":
		return fmt.Errorf("%w; %s", err, r.down)
	}
	return fmt.Errorf("%w; run the command again to go on", err)
}
