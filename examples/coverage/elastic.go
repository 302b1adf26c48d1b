package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
)

const (
	keepAlive   = "1m"     // how long the point in time is kept after each page
	maxResponse = 64 << 20 // bytes of a page
	wholeLoads  = 3        // how often a load is tried if its point in time is lost
	maxRetries  = 6        // how often a request is retried, after pauses of 0.2 to 6.4 s, 13 s in all
)

// elastic reads a whole index of an Elasticsearch cluster as of one point in time. It reads slices
// at the same time, each page by page, and holds one page of each slice in memory.
//
// It needs only three requests, so it uses only the transport of the official client. Compiling the
// client's API takes 48 s of processor time, and compiling its typed API takes four minutes. The
// function genuine repeats the client's check of the product.
type elastic struct {
	index    string
	pageSize int // documents
	slices   int
	es       *elastictransport.Client
}

// newElastic takes the address of a cluster, with a user and a password if the cluster needs them.
func newElastic(address, apiKey, index string, options ...elastictransport.Option) (*elastic, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("--elasticsearch: is not the address of a cluster; give it as http://host:9200")
	}
	es, err := elastictransport.NewClient(append([]elastictransport.Option{
		elastictransport.WithURLs(u), elastictransport.WithAPIKey(apiKey),
		elastictransport.WithRetry(maxRetries, http.StatusTooManyRequests, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout),
		elastictransport.WithRetryBackoff(func(attempt int) time.Duration {
			longest := 100 * time.Millisecond << attempt
			return longest/2 + rand.N(longest/2) // random, so that the slices do not retry at the same time
		}),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("client to %s: %w", u.Redacted(), err)
	}
	return &elastic{index: index, pageSize: 2000, slices: 4, es: es}, nil
}

func (e *elastic) String() string { return e.es.URLs()[0].Redacted() + "/" + e.index }

// errLost means that the point in time no longer exists. Documents loaded from it cannot be
// used, since another point in time may have other documents.
var errLost = errors.New("the point in time is lost")

func (e *elastic) load(ctx context.Context, into *sink) (err error) {
	for try := range wholeLoads {
		if try > 0 {
			into.log.Warn("loading again from the start", "error", err)
			into.restart()
		}
		if err = e.loadOnce(ctx, into); !errors.Is(err, errLost) {
			break
		}
	}
	return err
}

func (e *elastic) loadOnce(ctx context.Context, into *sink) error {
	var opened struct {
		ID string `json:"id"`
	}
	err := e.do(ctx, "open a point in time", http.MethodPost, "/"+url.PathEscape(e.index)+"/_pit?keep_alive="+keepAlive,
		nil, &opened)
	if err != nil {
		return err
	}
	defer e.close(ctx, opened.ID)

	ctx, cancel := context.WithCancelCause(ctx) // a slice that fails stops the others
	defer cancel(nil)
	var readers sync.WaitGroup
	var adding sync.Mutex
	for slice := range e.slices {
		readers.Go(func() {
			if err := e.loadSlice(ctx, opened.ID, slice, &adding, into); err != nil {
				cancel(fmt.Errorf("slice %d of %d: %w", slice+1, e.slices, err))
			}
		})
	}
	readers.Wait()
	return context.Cause(ctx)
}

// search is the body of a request for a page.
type search struct {
	Size           int             `json:"size"`
	PIT            pit             `json:"pit"`
	Slice          *slice          `json:"slice,omitempty"`
	Sort           []string        `json:"sort"`
	SearchAfter    json.RawMessage `json:"search_after,omitempty"`
	TrackTotalHits bool            `json:"track_total_hits"`
}

type pit struct {
	ID        string `json:"id"`
	KeepAlive string `json:"keep_alive,omitempty"`
}

type slice struct {
	ID  int `json:"id"`
	Max int `json:"max"`
}

// page is the answer to a search.
type page struct {
	PIT      string `json:"pit_id"`
	TimedOut bool   `json:"timed_out"`
	Shards   struct {
		Failed   int
		Failures []json.RawMessage
	} `json:"_shards"`
	Hits struct {
		Total *struct {
			Value    int
			Relation string
		}
		Hits []struct {
			ID     string          `json:"_id"`
			Source json.RawMessage `json:"_source"`
			Sort   json.RawMessage
		}
	}
}

// loadSlice reads page after page, and checks that it has read as many documents as the first page
// announced.
func (e *elastic) loadSlice(ctx context.Context, id string, number int, adding *sync.Mutex, into *sink) error {
	ask := search{
		Size: e.pageSize, PIT: pit{id, keepAlive}, Sort: []string{"_shard_doc"}, // the cheapest order
		TrackTotalHits: true,
	}
	if e.slices > 1 {
		ask.Slice = &slice{number, e.slices}
	}
	read, total := 0, 0
	for {
		var got page
		err := e.do(ctx, "read a page", http.MethodPost, "/_search?allow_partial_search_results=false", ask, &got)
		if err != nil {
			return err
		}
		if got.TimedOut || got.Shards.Failed > 0 {
			return fmt.Errorf("read a page: documents are missing (%d shards failed, timed out: %t): %s",
				got.Shards.Failed, got.TimedOut, cut(got.Shards.Failures))
		}
		if t := got.Hits.Total; t != nil && ask.TrackTotalHits {
			total = t.Value
		}
		hits := got.Hits.Hits
		if len(hits) == 0 {
			if read != total {
				return fmt.Errorf("received only %d of %d documents", read, total)
			}
			return nil
		}
		adding.Lock()
		for _, hit := range hits {
			if err = into.add(hit.Source, func() string { return "document " + hit.ID }); err != nil {
				break
			}
		}
		adding.Unlock()
		if err != nil {
			return err
		}
		read += len(hits)
		ask.SearchAfter, ask.TrackTotalHits = hits[len(hits)-1].Sort, false
		if got.PIT != "" {
			ask.PIT.ID = got.PIT // the id may change from page to page
		}
	}
}

// close ends the point in time, even if ctx is done.
func (e *elastic) close(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// if this fails, the point in time ends after keepAlive
	_ = e.do(ctx, "", http.MethodDelete, "/_pit", pit{ID: id}, &struct{}{})
}

// do sends a request and reads the answer. `body` may be nil. The transport retries if the cluster
// is busy.
func (e *elastic) do(ctx context.Context, doing, method, target string, body, into any) error {
	fail := func(err error) error { return fmt.Errorf("%s of %s: %w", doing, e, err) }
	var send io.Reader // stays nil without a body
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fail(err)
		}
		send = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, send)
	if err != nil {
		return fail(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := e.es.Perform(request)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse+1))
	switch {
	case err != nil:
		return fail(err)
	case len(text) > maxResponse:
		return fail(fmt.Errorf("the answer is longer than %d MiB; set --page-size lower", maxResponse>>20))
	case answer.StatusCode == http.StatusNotFound && bytes.Contains(text, []byte("search_context_missing_exception")):
		return fail(errLost)
	case answer.StatusCode > 299:
		return fail(fmt.Errorf("%s: %s", answer.Status, cut(text)))
	}
	if err := genuine(answer.Header); err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fail(err)
	}
	return nil
}

// genuine checks for a real Elasticsearch, as the official client does.
func genuine(header http.Header) error {
	if !slices.Contains(header["X-Elastic-Product"], "Elasticsearch") {
		return errors.New("the server is no Elasticsearch: its header X-Elastic-Product is missing or wrong")
	}
	return nil
}

// cut shortens an answer so that it fits into an error.
func cut[T []byte | []json.RawMessage](text T) string {
	return fmt.Sprintf("%.500s", text)
}
