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
	"github.com/elastic/go-elasticsearch/v9/esapi"
)

const (
	keepAlive   = time.Minute // of the point in time, after each page
	maxResponse = 64 << 20    // bytes of a page
	wholeLoads  = 3           // tries, when the point in time is lost
	maxRetries  = 6           // of a request: waits of 0.2 to 6.4 s, 13 s together
)

// elastic reads an index of an Elasticsearch cluster: all of it as it was at one point in
// time, in slices that are read at once, a page at a time. What it holds of the answers is
// a page for each slice.
//
// It uses the official client's API and transport, and not the package elasticsearch
// around them: that imports the typed API, of a thousand packages, for four minutes of
// compiling. What it would add here is genuine.
type elastic struct {
	index    string
	pageSize int // documents
	slices   int
	es       *elastictransport.Client
}

// newElastic takes the address of a cluster, which may have a user and a password.
func newElastic(address, apiKey, index string, options ...elastictransport.Option) (*elastic, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("--elasticsearch: is not the address of a cluster; give it as http://host:9200")
	}
	es, err := elastictransport.NewClient(append([]elastictransport.Option{
		elastictransport.WithURLs(u), elastictransport.WithAPIKey(apiKey),
		elastictransport.WithRetry(maxRetries, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout),
		elastictransport.WithRetryBackoff(func(attempt int) time.Duration {
			longest := 100 * time.Millisecond << attempt
			return longest/2 + rand.N(longest/2) // so that slices do not come back all at once
		}),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("client to %s: %w", u.Redacted(), err)
	}
	return &elastic{index: index, pageSize: 2000, slices: 4, es: es}, nil
}

func (e *elastic) String() string { return e.es.URLs()[0].Redacted() + "/" + e.index }

// errLost says that the point in time is there no more. What was loaded from it is of no
// use: another one may have other documents.
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
	err := e.do(ctx, "open a point in time", esapi.OpenPointInTimeRequest{Index: []string{e.index}, KeepAlive: keepAlive}, &opened)
	if err != nil {
		return err
	}
	defer e.close(ctx, opened.ID)

	ctx, cancel := context.WithCancelCause(ctx) // one slice that fails ends the others
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

// page is the answer.
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

// loadSlice reads page after page, and holds that it read as many documents as the first
// page said there are.
func (e *elastic) loadSlice(ctx context.Context, id string, number int, adding *sync.Mutex, into *sink) error {
	ask := search{
		Size: e.pageSize, PIT: pit{id, "1m"}, Sort: []string{"_shard_doc"}, // the cheapest order there is
		TrackTotalHits: true,
	}
	if e.slices > 1 {
		ask.Slice = &slice{number, e.slices}
	}
	read, total := 0, 0
	for {
		body, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		var got page
		partial := false
		err = e.do(ctx, "read a page", esapi.SearchRequest{Body: bytes.NewReader(body), AllowPartialSearchResults: &partial}, &got)
		if err != nil {
			return err
		}
		if got.TimedOut || got.Shards.Failed > 0 {
			return fmt.Errorf("read a page: %d shards failed, timed out: %t, and so documents are missing: %s", got.Shards.Failed, got.TimedOut, cut(got.Shards.Failures))
		}
		if t := got.Hits.Total; t != nil && ask.TrackTotalHits {
			total = t.Value
		}
		hits := got.Hits.Hits
		if len(hits) == 0 {
			if read != total {
				return fmt.Errorf("%d documents of %d came", read, total)
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
			ask.PIT.ID = got.PIT // it may change from page to page
		}
	}
}

// close gives the point in time back, even if the load was given up.
func (e *elastic) close(ctx context.Context, id string) {
	body, err := json.Marshal(pit{ID: id})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = e.do(ctx, "", esapi.ClosePointInTimeRequest{Body: bytes.NewReader(body)}, &struct{}{}) // it ends by itself in a minute
}

// do sends a request, which the transport tries again if the cluster is busy, and reads
// the answer.
func (e *elastic) do(ctx context.Context, doing string, request esapi.Request, into any) error {
	fail := func(err error) error { return fmt.Errorf("%s of %s: %w", doing, e, err) }
	answer, err := request.Do(ctx, e.es)
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
	case answer.IsError():
		return fail(fmt.Errorf("%s: %s", answer.Status(), cut(text)))
	}
	if err := genuine(answer.Header); err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fail(err)
	}
	return nil
}

// genuine is what the official client checks of the first answer.
func genuine(header http.Header) error {
	if !slices.Contains(header["X-Elastic-Product"], "Elasticsearch") {
		return errors.New("the server is no Elasticsearch, by its header X-Elastic-Product")
	}
	return nil
}

// cut is as much of an answer as fits into an error.
func cut[T []byte | []json.RawMessage](text T) string {
	return fmt.Sprintf("%.500s", text)
}
