package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// tapAPI streams arriving datagrams to operators, raw or line by line.
type tapAPI struct {
	collector *collector.Collector
	stored    func(tenant string) tail.Stored
	node      string          // of this process; empty if it is in no cluster
	stopping  context.Context // done when the server stops, since the stop must not wait for streams
}

const (
	// tapStall is how long a client may read nothing before its tap is closed. Only a few taps may be
	// open, so a stalled client must not keep one.
	tapStall = 10 * time.Second

	// tapNotice is how often a tail reports the number of lines that it did not show.
	tapNotice = time.Second
)

func (s *server) newTapAPI() tapAPI {
	ctx, stop := context.WithCancel(context.Background())
	s.http[0].server.RegisterOnShutdown(stop) // all streams stop together
	return tapAPI{s.collector, s.storedNames, s.config.Cluster.Node, ctx}
}

// storedNames returns the PromQL names of the tenant's series.
func (s *server) storedNames(tenant string) tail.Stored {
	return func(in *mapping.Input) []string {
		out := s.mapper.Load().Map(in)
		if out.Drop {
			return nil
		}
		name, _, _ := s.peekName(&catalogue.Claim{
			Tenant: tenant, Name: out.Name, Raw: in.Name, Named: out.Named, Kind: out.Kind, Buckets: out.Buckets,
		})
		if out.Buckets == "" {
			return []string{name}
		}
		return []string{name, name + "_bucket", name + "_sum", name + "_count"}
	}
}

func (a tapAPI) register(mux *routes) {
	mux.HandleFunc("GET /api/v1/status/capture", a.capture)
	mux.HandleFunc("GET /api/v1/status/tail", a.tail)
}

// stream is an answer that continues until its client leaves.
type stream struct {
	ctx     context.Context
	tap     *collector.Tap
	out     *bufio.Writer
	control *http.ResponseController
}

// follow opens a tap, and calls `show` with the datagrams that arrive, until the client leaves or
// the server stops. If no datagram arrives for tapNotice, it calls `show` without one.
func (a tapAPI) follow(
	w http.ResponseWriter, r *http.Request, o collector.TapOptions, kind string,
	begin func(s *stream) (show func([]capture.Datagram, uint64) error),
) {
	if err := knownListener(o, a.collector.Listening()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tap, err := a.collector.Tap(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer tap.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.stopping, cancel)()
	s := &stream{ctx, tap, bufio.NewWriterSize(w, 64<<10), http.NewResponseController(w)}
	w.Header().Set("Content-Type", kind)
	show := begin(s)
	for err = show(nil, 0); err == nil && s.flush() == nil; {
		var all []capture.Datagram
		var missed uint64
		if all, missed, err = s.next(); err == nil {
			err = show(all, missed)
		}
	}
}

// knownListener refuses an unknown socket, since a tap of that socket would never get a datagram.
func knownListener(o collector.TapOptions, all []collector.Listening) error {
	var names []string
	for _, l := range all {
		if l.Tenant != o.Tenant {
			continue
		}
		name := l.Network + "://" + l.Address
		if o.Listener == "" || o.Listener == name {
			return nil
		}
		names = append(names, name)
	}
	if o.Listener == "" {
		return nil
	}
	return fmt.Errorf("listener = %s: the tenant %s has no such socket; it has %s", o.Listener, o.Tenant,
		cmp.Or(strings.Join(names, ", "), "none"))
}

// next waits at most tapNotice for datagrams.
func (s *stream) next() ([]capture.Datagram, uint64, error) {
	ctx, cancel := context.WithTimeout(s.ctx, tapNotice)
	defer cancel()
	all, missed, err := s.tap.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, 0, nil
	}
	return all, missed, err
}

// flush sends the buffered output. It fails if the client does not read it within tapStall.
func (s *stream) flush() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(tapStall)); err != nil {
		return err
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.control.Flush()
}

// capture streams arriving datagrams in the format of docs/format/capture.md.
func (a tapAPI) capture(w http.ResponseWriter, r *http.Request) {
	o := collector.TapOptions{Tenant: tenantOf(r), Listener: r.FormValue("listener"), Share: 1}
	a.follow(w, r, o, "application/octet-stream", func(s *stream) func([]capture.Datagram, uint64) error {
		writer := capture.NewWriter(s.out)
		return func(all []capture.Datagram, missed uint64) error {
			for i := range all {
				if err := writer.Write(&all[i]); err != nil {
					return err
				}
			}
			return writer.Missed(missed)
		}
	})
}

// tail streams the lines that pass a filter, as JSON, one object a line.
func (a tapAPI) tail(w http.ResponseWriter, r *http.Request) {
	filter, share, rate, err := tail.ParseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o := collector.TapOptions{Tenant: tenantOf(r), Listener: r.FormValue("listener"), Share: share}
	a.follow(w, r, o, "application/x-ndjson", func(s *stream) func([]capture.Datagram, uint64) error {
		t := &tailer{selector: tail.New(filter, a.stored(o.Tenant)), rate: rate, out: json.NewEncoder(s.out)}
		t.unseen.Node = a.node
		t.out.SetEscapeHTML(false)
		return t.show
	})
}

// tailer writes at most `rate` lines a second.
type tailer struct {
	selector *tail.Selector
	rate     int // 0 for no limit
	out      *json.Encoder
	second   time.Time // when the present second began
	shown    int       // lines shown in the present second
	unseen   answer.Tailed
}

func (t *tailer) show(all []capture.Datagram, missed uint64) error {
	if now := time.Now(); now.Sub(t.second) >= tapNotice {
		t.second, t.shown = now, 0
		t.selector.Forget()
		if t.unseen != (answer.Tailed{}) {
			if err := t.out.Encode(t.unseen); err != nil {
				return err
			}
			t.unseen = answer.Tailed{}
		}
	}
	t.unseen.Missed += missed
	for i := range all {
		for line := range t.selector.Lines(&all[i]) {
			if t.rate > 0 && t.shown == t.rate {
				t.unseen.LeftOut++
				continue
			}
			t.shown++
			if err := t.out.Encode(answer.Tailed{Line: line}); err != nil {
				return err
			}
		}
	}
	return nil
}
