package promapi

import (
	"bytes"
	"fmt"
	"sync"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/promql"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// streams encodes answers as Prometheus' JSON. A matrix, the only large result, goes to the client series by series,
// so its JSON is never in memory as a whole. Prometheus' own codec returns the whole JSON, and grows its buffer by
// copying. A codec gets no request, so streams remembers which answer a matrix is for. It is safe for concurrent use.
type streams struct {
	v1.JSONCodec
	answers sync.Map // *answer by *promql.Series, the first one of its matrix
}

// open remembers which answer a result is for, until close. The answer may be nil.
func (s *streams) open(result *promql.Result, a *answer) {
	if m, ok := result.Value.(promql.Matrix); ok && len(m) > 0 && a != nil {
		s.answers.Store(&m[0], a)
	}
}

// close must be called before the memory of the result is used again.
func (s *streams) close(result *promql.Result) {
	if m, ok := result.Value.(promql.Matrix); ok && len(m) > 0 {
		s.answers.Delete(&m[0])
	}
}

// Encode returns what is left to write: nothing after a matrix.
func (s *streams) Encode(r *v1.Response) ([]byte, error) {
	data, ok := r.Data.(*v1.QueryData)
	if !ok {
		return s.JSONCodec.Encode(r)
	}
	m, ok := data.Result.(promql.Matrix)
	if !ok || len(m) == 0 {
		return s.JSONCodec.Encode(r)
	}
	to, ok := s.answers.Load(&m[0])
	if !ok {
		return s.JSONCodec.Encode(r)
	}
	frame, of := *r, *data
	of.Result = promql.Matrix{}
	frame.Data = &of
	text, err := s.JSONCodec.Encode(&frame)
	if err != nil {
		return nil, err
	}
	before, after, ok := bytes.Cut(text, []byte(`"result":[]`))
	if !ok {
		panic(fmt.Sprintf("BUG: no place for the result in %s", text))
	}
	s.write(to.(*answer), before, m, after)
	return nil, nil
}

// write ends early if the client has gone, which the answer has noted.
func (s *streams) write(to *answer, before []byte, m promql.Matrix, after []byte) {
	to.Header().Set("Content-Type", s.ContentType().String())
	json := jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, to.body, piece)
	json.WriteRaw(string(before) + `"result":[`)
	for i := range m {
		if i > 0 {
			json.WriteMore()
		}
		json.WriteVal(&m[i])
		if json.Buffered() >= piece && json.Flush() != nil {
			return
		}
	}
	json.WriteRaw("]" + string(after))
	_ = json.Flush()
}
