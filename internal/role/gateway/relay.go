package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"
)

// Relay passes HTTP requests on to the nodes of a cluster, unchanged. It decides nothing about them: the node
// that answers applies its own rules. A Relay is for processes that are not nodes.
//
// A write goes to the leader, and a read or an import to one of the ready nodes that lag least. If that node does not
// answer, the request goes to one other node. A write that arrives twice in this way is a repeat. An import goes to the
// other node only if the first one has taken nothing of its block, since the Relay does not keep it.
type Relay struct {
	RelayOptions

	known     known
	dialer    net.Dialer
	memory    *semaphore.Weighted
	transport http.RoundTripper
	requests  *prometheus.CounterVec // by node and kind
	again     *prometheus.CounterVec // by kind
	failed    *prometheus.CounterVec // by kind
}

// RelayOptions are the parts of a Relay. All are required.
type RelayOptions struct {
	// Look asks all nodes for their state until ctx is done. It returns the nodes that answered.
	Look      func(ctx context.Context) []Node
	MaxMemory int64 // bytes of requests under way
	Registry  prometheus.Registerer
	Logger    *slog.Logger
}

const (
	// maxBody bounds the body of a request, in bytes. Nodes have a lower bound: see distributor.max_body.
	maxBody int64 = 64 << 20

	// dialTime bounds the wait for a connection to a node. After it, the next node is tried.
	dialTime = time.Second

	// connections is the largest number of unused connections that are kept to a node.
	connections = 256
)

// kind is what a request does.
type kind string

const (
	reads   kind = "read"
	writes  kind = "write"
	imports kind = "import"
)

// NewRelay returns a Relay. It knows no nodes until Run has asked them.
func NewRelay(o RelayOptions) *Relay {
	f := promauto.With(o.Registry)
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "freshet_gateway_" + name, Help: help}, labels)
	}
	transport := &http.Transport{
		TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
		DisableCompression:    true, // bodies pass unchanged
		ExpectContinueTimeout: askedTime,
	}
	y := &Relay{
		RelayOptions: o, memory: semaphore.NewWeighted(o.MaxMemory), transport: transport,
		requests: vec("requests_total", "Requests that a node answered, by node and by kind: read, write or import.",
			"node", "kind"),
		again: vec("requests_again_total", "Requests passed on to a second node, since the first one did not answer. "+
			"Rising: a node has died, or is cut off.", "kind"),
		failed: vec("requests_failed_total", "Requests that no node answered, or that had no place in memory; the sender "+
			"got 503. Rising: no node can be reached from here, or senders send more than distributor.max_memory at once.",
			"kind"),
	}
	y.dialer.Timeout, transport.DialContext = dialTime, y.dial
	for _, k := range []kind{reads, writes, imports} {
		y.again.WithLabelValues(string(k))
		y.failed.WithLabelValues(string(k))
	}
	return y
}

// dial connects to a node: at the host that the node told, or, if that name has no address here, at the host that the
// configuration here names. A certificate is for the former in both cases.
func (y *Relay) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := y.dialer.DialContext(ctx, network, address)
	var unknown *net.DNSError
	if errors.As(err, &unknown) {
		if other := y.known.elsewhere(address); other != "" && other != address {
			return y.dialer.DialContext(ctx, network, other)
		}
	}
	return conn, err
}

// Run asks the nodes for their state until ctx is done.
func (y *Relay) Run(ctx context.Context) error { return y.known.run(ctx, y.Look) }

// Ready reports whether a node can answer at its usual speed.
func (y *Relay) Ready() bool { return y.known.ready() }

// Reads passes on requests that only read. Writes passes on those that write. Their bodies are kept until a node has
// answered.
func (y *Relay) Reads() http.Handler  { return y.kept(reads) }
func (y *Relay) Writes() http.Handler { return y.kept(writes) }

// Imports passes on requests with blocks of any size, as they come.
func (y *Relay) Imports() http.Handler {
	proxy := y.proxy(imports, func(h http.Header) {
		h.Set("Expect", "100-continue") // a refusal comes before the node takes anything of the block
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(w, withBody(r, newStream(w, r.Body)))
	})
}

// kept passes on requests of a kind, with their bodies in memory.
func (y *Relay) kept(k kind) http.Handler {
	proxy := y.proxy(k, func(h http.Header) { h.Del("Expect") }) // the body is here
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := min(maxBody, y.MaxMemory)
		size := limit // if the sender does not say the size
		if r.ContentLength >= 0 {
			size = r.ContentLength
		}
		switch {
		case size > limit:
			http.Error(w, fmt.Sprintf("the request is larger than %d bytes", limit), http.StatusRequestEntityTooLarge)
			return
		case !y.memory.TryAcquire(size):
			y.refuse(w, r, k, errNoMemory)
			return
		}
		defer y.memory.Release(size)
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, size))
		if err != nil {
			status := http.StatusBadRequest
			if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, fmt.Sprintf("read the request: %v", err), status)
			return
		}
		r.ContentLength = int64(len(b))
		proxy.ServeHTTP(w, withBody(r, whole(b)))
	})
}

// proxy passes on requests of a kind that have a body in their context. `edit` changes their headers.
func (y *Relay) proxy(k kind, edit func(http.Header)) http.Handler {
	return &httputil.ReverseProxy{
		FlushInterval: -1, // at once
		ErrorLog:      slog.NewLogLogger(y.Logger.Handler(), slog.LevelWarn),
		Rewrite: func(r *httputil.ProxyRequest) {
			// These headers tell the node that the request came through a gateway. If this process runs
			// on the node's machine, the request would otherwise seem to come from that machine, and
			// have an operator's rights.
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
			r.Out.Header.Add("Via", "1.1 freshet")
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "node" // RoundTrip finds the node
			edit(r.Out.Header)
		},
		Transport:    &way{y, k},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { y.refuse(w, r, k, err) },
	}
}

var (
	errNoMemory = errors.New("requests under way take all of distributor.max_memory")
	errNoNode   = errors.New("no node of the cluster answers this gateway")
)

// refuse answers a request for which no node had an answer.
func (y *Relay) refuse(w http.ResponseWriter, r *http.Request, k kind, err error) {
	if r.Context().Err() != nil {
		return // the client is gone
	}
	y.failed.WithLabelValues(string(k)).Inc()
	w.Header().Set("Retry-After", "1")
	_, lost := errors.AsType[lostError](err)
	switch {
	case k == imports && lost:
		err = fmt.Errorf("the block may be imported; import it again, and nothing counts twice: %w", err)
	case k == writes && lost:
		err = fmt.Errorf("it may be written, in whole or in part; send it again in 1s, and nothing counts twice: %w", err)
	case k == writes:
		err = fmt.Errorf("nothing was written, send it again in 1s: %w", err)
	}
	if k == writes {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{ // fails if the client is gone
		"status": "error", "errorType": "unavailable", "error": err.Error(),
	})
}

// lostError is the error of a request that a node may have received.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// way is an http.RoundTripper for the requests of one kind.
type way struct {
	*Relay
	kind kind
}

// RoundTrip passes a request on to a node, and to another node if the first one does not or cannot answer.
func (y *way) RoundTrip(r *http.Request) (*http.Response, error) {
	body := bodyOf(r)
	nodes := y.known.order(y.kind)
	if len(nodes) == 0 {
		return nil, errNoNode
	}
	var failures []string
	lost := false
	for i, n := range nodes[:min(2, len(nodes))] {
		if i > 0 {
			y.again.WithLabelValues(string(y.kind)).Inc()
		}
		last := i+1 == min(2, len(nodes))
		answer, err := y.pass(r, &n, body.read())
		if err == nil && (last || y.kind == writes || answer.StatusCode != http.StatusServiceUnavailable || !body.unread()) {
			return answer, nil
		}
		if err == nil { // the node stops, or does not answer queries
			_ = answer.Body.Close()
			failures = append(failures, fmt.Sprintf("node %s answers %s", n.Name, answer.Status))
			continue
		}
		if r.Context().Err() != nil || body.broken() {
			return nil, err
		}
		y.known.fail(n.Name)
		lost = lost || !dialled(err)
		failures = append(failures, fmt.Sprintf("node %s: %v", n.Name, err))
		if !body.unread() {
			break
		}
	}
	err := fmt.Errorf("%w: %s", errNoNode, strings.Join(failures, "; "))
	if lost {
		err = lostError{err}
	}
	return nil, err
}

// dialled reports whether an error came before anything was sent.
func dialled(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "dial"
}

// pass sends a request to a node. It ends once the node counts as gone: a paused or disconnected node would not
// answer for a long time.
func (y *way) pass(r *http.Request, n *node, body io.ReadCloser) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(n.gone, func() { cancel(errGone) })
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = n.scheme, n.host
	out.Body, out.GetBody = body, nil // the transport must not send a request twice by itself
	answer, err := y.transport.RoundTrip(out)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && r.Context().Err() == nil {
			err = cause
		}
		stop()
		cancel(nil)
		return nil, err
	}
	y.requests.WithLabelValues(n.Name, string(y.kind)).Inc()
	answer.Body = &held{answer.Body, func() {
		stop()
		cancel(nil)
	}}
	return answer, nil
}

// held is the body of an answer. Its Close also releases the resources of the call.
type held struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (h *held) Close() error {
	defer h.release()
	return h.ReadCloser.Close()
}
