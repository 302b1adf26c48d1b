package remoteread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// answering returns the Post of a server with this answer.
func answering(answer http.HandlerFunc) Post {
	return func(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/read", body)
		r.Header = header
		answer(w, r)
		return w.Result(), nil
	}
}

// frame returns a frame with the chunks of a series, each with one sample.
func frame(t *testing.T, name string, times ...int64) []byte {
	t.Helper()
	s := &prompb.ChunkedSeries{Labels: []prompb.Label{{Name: "__name__", Value: name}}}
	for _, at := range times {
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		app.Append(0, at, 1)
		s.Chunks = append(s.Chunks, prompb.Chunk{MinTimeMs: at, MaxTimeMs: at, Type: prompb.Chunk_XOR, Data: c.Bytes()})
	}
	b, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{s}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll returns the series of an answer, and the times of their chunks.
func readAll(t *testing.T, post Post) (all []string, err error) {
	t.Helper()
	up := labels.MustNewMatcher(labels.MatchEqual, "__name__", "up")
	err = Read(t.Context(), post, 0, 100, []*labels.Matcher{up}, func(ls labels.Labels, metas []chunks.Meta) error {
		text := ls.Get("__name__")
		for _, c := range metas {
			text += fmt.Sprintf(" %d", c.MinTime)
		}
		all = append(all, text)
		return nil
	})
	return all, err
}

// A series with many chunks comes in several frames, and is one series all the same.
func TestASeriesInSeveralFrames(t *testing.T) {
	got, err := readAll(t, answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		out := remote.NewChunkedWriter(w, w.(http.Flusher))
		for _, f := range [][]byte{
			frame(t, "a", 1, 2), frame(t, "a", 3), frame(t, "b", 1), frame(t, "c", 5), frame(t, "c", 6),
		} {
			if _, err := out.Write(f); err != nil {
				t.Error(err)
			}
		}
	}))
	if want := "[a 1 2 3 b 1 c 5 6]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("read %v, %v; want %s", got, err, want)
	}
}

// The same request gets the answer of a wrong address again, and not that of a server that has too much to do.
func TestAnswersThatLast(t *testing.T) {
	for status, want := range map[int]bool{200: true, 301: true, 400: true, 401: true, 404: true, 405: true, 408: false,
		422: true, 429: false, 500: false, 501: true, 502: false, 503: false, 504: false} {
		_, err := readAll(t, answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		answer, is := errors.AsType[AnswerError](err)
		if !is || answer.Lasts() != want {
			t.Errorf("%d: %v lasts: %t, want %t", status, err, answer.Lasts(), want)
		}
	}
}

// An answer that is not whole, or of another kind, is an error that says what came.
func TestAnswersThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"samples in place of chunks": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
		}, "only streamed chunks are read"},
		"an error": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too many samples", http.StatusBadRequest)
		}, "too many samples"},
		"half a frame": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-streamed-protobuf")
			var whole strings.Builder
			out := remote.NewChunkedWriter(&whole, httptest.NewRecorder())
			if _, err := out.Write(frame(t, "a", 1)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, whole.String()[:whole.Len()-3])
		}, "unexpected EOF"},
	} {
		if got, err := readAll(t, answering(c.answer)); err == nil || !strings.Contains(err.Error(), c.says) || len(got) > 0 {
			t.Errorf("%s: read %v, %v; want an error with %q", name, got, err, c.says)
		}
	}
}
