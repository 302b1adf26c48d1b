// Package remoteread reads samples from a server by Prometheus' remote read, in chunks as the server has them.
package remoteread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// frameBytes is the largest frame that is read. Prometheus' frames have 1 MiB, unless one series has more.
const frameBytes = 64 << 20

// Post sends a body with these headers to the remote read endpoint of a server.
type Post func(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error)

// AnswerError is an answer without samples: the server refuses the request, or is another kind of server.
type AnswerError struct {
	Status int
	text   string
}

// Error implements error.
func (e AnswerError) Error() string { return e.text }

// Lasts reports whether the same request would get the same answer again.
func (e AnswerError) Lasts() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusNotImplemented:
		return true
	}
	return e.Status < http.StatusInternalServerError
}

// Read calls `each` with each series that matches, and its chunks. The chunks may have samples before `from` and after
// `to`, in Unix milliseconds and both included. Labels and chunks belong to `each`.
func Read(ctx context.Context, post Post, from, to int64, matchers []*labels.Matcher,
	each func(labels.Labels, []chunks.Meta) error) error {
	resp, err := ask(ctx, post, from, to, matchers)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	frames := remote.NewChunkedReader(resp.Body, frameBytes, nil)
	var of labels.Labels
	var all []chunks.Meta
	for {
		frame := &prompb.ChunkedReadResponse{}
		switch err := frames.NextProto(frame); {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return each(of, all)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the answer: %w", err)
		}
		for _, s := range frame.ChunkedSeries {
			// A series with many chunks comes in several frames.
			ls := labelsOf(s.Labels)
			if len(all) > 0 && !labels.Equal(of, ls) {
				if err := each(of, all); err != nil {
					return err
				}
				all = nil
			}
			of = ls
			if all, err = appendChunks(all, s.Chunks); err != nil {
				return fmt.Errorf("series %s: %w", ls, err)
			}
		}
	}
}

// ask sends the request, and returns an answer in chunks.
func ask(ctx context.Context, post Post, from, to int64, matchers []*labels.Matcher) (*http.Response, error) {
	query, err := remote.ToQuery(from, to, matchers, nil)
	if err != nil {
		return nil, err
	}
	request := prompb.ReadRequest{Queries: []*prompb.Query{query},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}}
	body, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	resp, err := post(ctx, http.Header{
		"Content-Encoding": {"snappy"}, "Content-Type": {"application/x-protobuf"},
		"X-Prometheus-Remote-Read-Version": {"0.1.0"},
	}, bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return nil, err
	}
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(kind, "application/x-streamed-protobuf") {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil, AnswerError{resp.StatusCode,
			fmt.Sprintf("it answers with %q; only streamed chunks are read, as Prometheus and Mimir send them", kind)}
	}
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // if the read fails, show the part that was read
	text := "it answered " + resp.Status
	if why = bytes.TrimSpace(why); len(why) > 0 {
		text += ": " + string(why)
	}
	return nil, AnswerError{resp.StatusCode, text}
}

func labelsOf(all []prompb.Label) labels.Labels {
	var b labels.ScratchBuilder
	for _, l := range all {
		b.Add(strings.Clone(l.Name), strings.Clone(l.Value))
	}
	b.Sort()
	return b.Labels()
}

func appendChunks(to []chunks.Meta, all []prompb.Chunk) ([]chunks.Meta, error) {
	for _, c := range all {
		chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, err
		}
		to = append(to, chunks.Meta{MinTime: c.MinTimeMs, MaxTime: c.MaxTimeMs, Chunk: chunk})
	}
	return to, nil
}
