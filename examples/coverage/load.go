package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// source is where the documents come from.
type source interface {
	// load gives all documents to the sink, or returns an error: an index in which documents are
	// silently missing would be worse than an old index.
	load(ctx context.Context, into *sink) error
	String() string
}

// sink takes documents as text, from one goroutine at a time.
type sink struct {
	builder    *builder
	mostBad    int
	bad        int
	firstBad   error
	log        *slog.Logger
	lastReport time.Time
}

// add takes one document. It counts invalid documents, and returns an error if there
// are too many.
func (s *sink) add(text []byte, where func() string) error {
	d, err := parseDocument(text)
	if err != nil {
		return s.refuse(where, err)
	}
	if err := s.builder.add(&d); err != nil {
		return err
	}
	s.progress()
	return nil
}

func (s *sink) refuse(where func() string, why error) error {
	s.bad++
	if s.bad == 1 {
		s.firstBad = fmt.Errorf("%s: %w", where(), why)
	}
	if s.bad > s.mostBad {
		return fmt.Errorf("%d documents are refused, more than --max-refused; the first is %w", s.bad, s.firstBad)
	}
	return nil
}

// restart drops all documents so far.
func (s *sink) restart() {
	b := newBuilder(0, s.builder.most)
	b.rows = s.builder.rows[:0]
	s.builder, s.bad, s.firstBad = b, 0, nil
}

// progress logs how far a load is, every few seconds.
func (s *sink) progress() {
	if len(s.builder.rows)%10_000 == 0 && time.Since(s.lastReport) >= 5*time.Second {
		s.lastReport = time.Now()
		s.log.Info("loading", "documents", len(s.builder.rows), "refused", s.bad)
	}
}

// ndjson is an export with a document in each line, plain or compressed by gzip.
type ndjson struct {
	path string // - is the standard input
}

func (n ndjson) String() string { return n.path }

func (n ndjson) load(ctx context.Context, into *sink) error {
	f := os.Stdin
	if n.path != "-" {
		var err error
		if f, err = os.Open(n.path); err != nil {
			return err
		}
		defer f.Close()
	}
	return loadNDJSON(ctx, f, into)
}

func loadNDJSON(ctx context.Context, r io.Reader, into *sink) error {
	lines := bufio.NewReaderSize(r, maxLine)
	if magic, err := lines.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(lines)
		if err != nil {
			return err
		}
		lines = bufio.NewReaderSize(unzipped, maxLine)
	}
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		where := func() string { return fmt.Sprint("line ", number) }
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) { // skip the rest of a line that is too long
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", number, err)
		}
		var failed error
		switch {
		case long:
			failed = into.refuse(where, fmt.Errorf("is longer than %d bytes", maxLine))
		case len(bytes.TrimSpace(line)) > 0:
			failed = into.add(line, where)
		}
		if failed != nil {
			return failed
		}
		if err == io.EOF {
			return nil
		}
		if number%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
