package forwarder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// answer is the result of one attempt to send a request.
type answer struct {
	verdict    verdict
	reason     string        // why the request was refused or is retried; a label of metrics, so it has few values
	text       string        // for the log
	retryAfter time.Duration // the wait that the backend asks for
}

type verdict int

const (
	acknowledged verdict = iota
	refused              // the backend refused the request permanently
	again                // the request must be sent again
)

// Reasons for answers without a status.
const (
	reasonFrame      = "frame"       // the queue holds a frame of another program
	reasonConversion = "conversion"  // the body cannot be converted to remote write 1.0
	reasonNotWritten = "not_written" // a success that does not say how much was written
	reasonTimeout    = "timeout"
	reasonNetwork    = "network"
)

const (
	maxText  = 512      // bytes of an answer that are shown
	maxDrain = 64 << 10 // bytes that are read and dropped so that the connection can be used again

	// maxRetryAfter bounds the wait that a backend may ask for, so that a backend's mistake cannot
	// stop the forwarder for days.
	maxRetryAfter = time.Hour
)

// send makes one attempt. If the backend does not know version 2.0 of remote write, send makes
// another attempt in version 1.0 at once.
func (f *Forwarder) send(ctx context.Context, r Request) answer {
	if r.Version == 2 && (f.config.Protocol == settings.ProtocolV1 || f.onlyV1.Load()) {
		body, err := toV1(r.Body)
		if err != nil {
			return answer{verdict: refused, reason: reasonConversion, text: err.Error()}
		}
		r.Version, r.Body = 1, body
	} else {
		// After an early answer, the transport may still read the body while the queue reuses the body's
		// memory.
		r.Body = bytes.Clone(r.Body)
	}
	a, unknown := f.attempt(ctx, r)
	if unknown && r.Version == 2 && f.config.Protocol == settings.ProtocolAuto {
		f.onlyV1.Store(true)
		f.logger.Info("the backend does not know remote write 2.0; it gets 1.0 until the next restart", "status", a.reason)
		return f.send(ctx, r)
	}
	return a
}

// attempt sends a request once. `unknown` reports whether the backend does not know the version.
func (f *Forwarder) attempt(ctx context.Context, r Request) (a answer, unknown bool) {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	begun := time.Now()
	resp, err := f.client.Do(f.request(ctx, r))
	f.metrics.requestSeconds.Observe(time.Since(begun).Seconds())
	if err != nil {
		a = answer{verdict: again, reason: reasonNetwork, text: withoutURL(err).Error()}
		if errors.Is(err, context.DeadlineExceeded) {
			a.reason = reasonTimeout
		}
		return a, false
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // an error does not matter, since the status has arrived
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	a = answer{reason: strconv.Itoa(resp.StatusCode), text: resp.Status + ": " + strings.TrimSpace(string(text))}
	switch code := resp.StatusCode; {
	case code/100 == 2 && r.Version == 2 && r.Samples+r.Histograms > 0 && !saysWritten(resp.Header):
		a.verdict, a.reason = refused, reasonNotWritten
		return a, true
	case code/100 == 2:
		a.verdict = acknowledged
	case code == http.StatusUnsupportedMediaType:
		a.verdict = refused
		return a, true
	case code/100 == 4 && code != http.StatusTooManyRequests:
		a.verdict = refused
	default: // includes redirects: requests wait until an operator corrects the URL
		a.verdict, a.retryAfter = again, retryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	return a, false
}

// withoutURL returns a client's error without the URL in front. The URL may contain a token, and
// the log line already names the backend.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// tenantPlace stands for the tenant in the value of a header.
const tenantPlace = "{tenant}"

func (f *Forwarder) request(ctx context.Context, r Request) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.config.URL, bytes.NewReader(r.Body))
	if err != nil {
		panic("BUG: forwarder: " + err.Error()) // cannot happen, since New has made a request with this URL
	}
	for name, value := range f.config.Headers {
		req.Header.Set(name, strings.ReplaceAll(value, tenantPlace, r.Tenant))
	}
	req.Header.Set("User-Agent", f.userAgent)
	req.Header.Set("Content-Encoding", "snappy")
	if r.Version == 2 {
		req.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
		req.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	} else {
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	}
	return req
}

// saysWritten reports whether the answer has a header that says how much was written. A backend
// that knows 2.0 must send one. A backend that knows only 1.0 may find nothing in a request of 2.0,
// and still answer with success.
func saysWritten(h http.Header) bool {
	for _, what := range []string{"Samples", "Histograms", "Exemplars"} {
		if h.Get("X-Prometheus-Remote-Write-"+what+"-Written") != "" {
			return true
		}
	}
	return false
}

// retryAfter reads the Retry-After header, in seconds or as a date.
func retryAfter(text string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
