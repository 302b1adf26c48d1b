package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fake is a kubelet. It lists one pod with the label app, whose container `late` starts later.
type fake struct {
	id     string // of that container; empty: late
	late   atomic.Bool
	app    atomic.Value
	status atomic.Int64
	asked  atomic.Int64
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked.Add(1)
	if r.URL.Path != "/pods" || r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if status := f.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	late := ""
	if f.late.Load() {
		late = "containerd://" + cmp.Or(f.id, "late")
	}
	fmt.Fprintf(w, `{"kind": "PodList", "items": [{"metadata": {"name": "shop-0", "namespace": "web", "uid": "u-1",
		"labels": {"app": %q}}, "status": {"containerStatuses": [{"name": "shop", "containerID": "containerd://abc"},
		{"name": "side", "containerID": %q}], "initContainerStatuses": [{"name": "first", "containerID": "cri-o://init"}]}}]}`,
		f.app.Load(), late)
}

// source returns Pods that ask a fake kubelet, and a counter of the calls of Renew.
func source(t *testing.T, f *fake, client *http.Client, url string) (*Pods, *atomic.Int64) {
	t.Helper()
	f.app.Store("shop")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	renewed := new(atomic.Int64)
	p, err := New(Options{URL: url, TokenFile: token, Verify: true, Renew: func() { renewed.Add(1) }, Now: time.Now,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if client != nil {
		p.client = client
	}
	return p, renewed
}

// inMemory answers requests without a network, so that a test can have a clock of its own.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

// Pods are found by their containers, of any kind, and by their UIDs; by HTTPS, with the token.
func TestFind(t *testing.T) {
	f := &fake{}
	server := httptest.NewTLSServer(f)
	defer server.Close()
	p, _ := source(t, f, server.Client(), server.URL)
	if pod := p.Find([]byte("abc"), nil, nil); pod != nil {
		t.Errorf("before the kubelet was asked: %+v", pod)
	}
	if err := p.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ container, uid, name string }{
		{"abc", "", "shop"}, {"init", "", "first"}, {"", "u-1", ""}, {"unknown", "u-1", ""}, {"abc", "other", "shop"},
	} {
		pod := p.Find([]byte(c.container), nil, []byte(c.uid))
		if pod == nil || pod.Name != "shop-0" || pod.Namespace != "web" || pod.UID != "u-1" || pod.Container != c.name ||
			pod.Labels["app"] != "shop" {
			t.Errorf("container %q of pod %q is %+v", c.container, c.uid, pod)
		}
	}
	if pod := p.Find([]byte("unknown"), nil, nil); pod != nil {
		t.Errorf("an unknown container is %+v", pod)
	}
}

// The certificate of a kubelet that signs its own is refused, unless it is not to be verified.
func TestVerify(t *testing.T) {
	f := &fake{}
	server := httptest.NewTLSServer(f)
	defer server.Close()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	for _, verify := range []bool{true, false} {
		p, _ := source(t, f, nil, server.URL)
		o := p.Options
		o.Verify, o.Registry = verify, prometheus.NewRegistry()
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ask(t.Context()); (err == nil) == verify {
			t.Errorf("verify is %v: %v", verify, err)
		}
	}
}

// A container that was not found is asked for soon, and Renew is called once it is listed. Without one, the kubelet is
// asked twice a minute.
func TestANewContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		p, renewed := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := f.asked.Load(); n < 10 || n > 11 || renewed.Load() != 0 {
			t.Errorf("in 5 minutes: asked %d times, renewed %d times", n, renewed.Load())
		}
		if p.Find([]byte("late"), nil, nil) != nil {
			t.Error("the container is known before it has started")
		}
		time.Sleep(5 * time.Second)
		f.late.Store(true)
		time.Sleep(2*wait + time.Millisecond)
		synctest.Wait()
		if pod := p.Find([]byte("late"), nil, nil); pod == nil || pod.Container != "side" || renewed.Load() != 1 {
			t.Errorf("the container is %+v, and was renewed %d times", pod, renewed.Load())
		}
		before := f.asked.Load()
		p.Find([]byte("of another machine"), nil, nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := f.asked.Load() - before; n > 55 {
			t.Errorf("asked %d times in 10 minutes for a container that is never listed", n)
		}
		f.app.Store("other")
		time.Sleep(period + time.Second)
		synctest.Wait()
		if pod := p.Find([]byte("abc"), nil, nil); pod.Labels["app"] != "other" || renewed.Load() != 2 {
			t.Errorf("a changed label: %+v, renewed %d times", pod, renewed.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A start knows the pods that run already, and does not wait long for a kubelet that hangs.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		p, renewed := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
		p.Begin()
		if pod := p.Find([]byte("abc"), nil, nil); pod == nil || pod.Name != "shop-0" || renewed.Load() != 0 {
			t.Errorf("the pod is %+v, and was renewed %d times", pod, renewed.Load())
		}
		p, _ = source(t, f, &http.Client{Transport: hangs{}}, "http://kubelet")
		begun := time.Now()
		if p.Begin(); time.Since(begun) != beginTime {
			t.Errorf("a kubelet that hangs delays a start by %v", time.Since(begun))
		}
	})
}

// hangs answers no request.
type hangs struct{}

func (hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A pod whose UID is known, in a container that is never listed, as one inside of a pod's sandbox, is no news: contexts
// are not resolved again, and the kubelet is asked no more often than for any unknown container.
func TestAContainerThatIsNeverListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		p, renewed := source(t, f, &http.Client{Transport: inMemory{f}}, "http://kubelet")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Second)
		for range 60 { // a context is resolved in each window of 10 s
			if pod := p.Find([]byte("sandboxed"), nil, []byte("u-1")); pod == nil || pod.Name != "shop-0" {
				t.Errorf("the pod is %+v", pod)
			}
			time.Sleep(10 * time.Second)
		}
		if n := f.asked.Load(); renewed.Load() != 0 || n > 100 {
			t.Errorf("in 10 minutes: renewed %d times, asked %d times", renewed.Load(), n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A kubelet that refuses leaves the known pods as they are, and its error says what is missing.
func TestRefused(t *testing.T) {
	f := &fake{}
	server := httptest.NewServer(f)
	defer server.Close()
	p, _ := source(t, f, nil, server.URL)
	if err := p.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.status.Store(http.StatusForbidden)
	if err := p.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "nodes/pods") {
		t.Errorf("refused: %v", err)
	}
	if p.Find([]byte("abc"), nil, nil) == nil {
		t.Error("the known pods are forgotten")
	}
	if n := testutil.ToFloat64(p.requests.WithLabelValues("error")); n != 1 {
		t.Errorf("%v failed requests are counted", n)
	}
}

// However many containers are unknown, only some are noted.
func TestUnknownIsBounded(t *testing.T) {
	f := &fake{}
	p, _ := source(t, f, nil, "http://127.0.0.1:1")
	for i := range 3 * maxUnknown {
		p.Find(fmt.Appendf(nil, "c%d", i), nil, nil)
	}
	if n := len(p.unknown); n != maxUnknown {
		t.Errorf("%d containers are noted, want %d", n, maxUnknown)
	}
	if n := testutil.ToFloat64(p.missed); n != 3*maxUnknown {
		t.Errorf("%v are counted", n)
	}
}

// A client that sends ids of no container does not keep the labels from the others.
func TestWrongIDsHarmNobodyElse(t *testing.T) {
	f := &fake{}
	server := httptest.NewServer(f)
	defer server.Close()
	p, renewed := source(t, f, nil, server.URL)
	p.Begin()
	for i := range maxUnknown {
		p.Find(fmt.Appendf(nil, "wrong%d", i), nil, nil)
	}
	p.Find([]byte("late"), nil, nil)
	f.late.Store(true)
	if err := p.ask(t.Context()); err != nil || renewed.Load() != 1 {
		t.Errorf("the container is listed: renewed %d times, error %v", renewed.Load(), err)
	}
	if err := p.ask(t.Context()); err != nil || renewed.Load() != 1 {
		t.Errorf("nothing is new: renewed %d times, error %v", renewed.Load(), err)
	}
}

// Any answer is read or refused, and no pod is nil.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"items": [{"metadata": {"uid": "u"}, "status": {"containerStatuses": [{"containerID": "a://b"}]}}]}`))
	f.Add([]byte(`{"items": null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := parse(body)
		for key, pod := range all {
			if err != nil || pod == nil || key == "" {
				t.Errorf("key %q has %+v, error %v", key, pod, err)
			}
		}
	})
}
