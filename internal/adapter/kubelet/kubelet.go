// Package kubelet asks the kubelet of this machine, which starts the pods of Kubernetes here, of which pod a container
// is. Senders name their container by its id, or by the inode of its cgroup, which it looks for in the file system of
// cgroups. Answers come from memory: a container that is new gets its pod at the next time that the kubelet is asked.
package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/mapping"
)

const (
	// period is how often the kubelet is asked while each container is known.
	period = 30 * time.Second

	// wait is the shortest time between two requests, and the time between them while a container is not known.
	wait = 2 * time.Second

	// patience is how long a container may be unknown before only every period counts: the kubelet lists a container
	// some seconds after its start, and one of another machine never.
	patience = time.Minute

	// maxUnknown bounds the containers and pods that are unknown. A machine has 110 pods by default.
	maxUnknown = 1000

	// maxAnswer bounds the kubelet's answer in bytes; a pod takes about 10 KB.
	maxAnswer = 64 << 20

	requestTime = 10 * time.Second

	// beginTime bounds how long a start waits for the first answer.
	beginTime = 2 * time.Second
)

// Options are the parts of Pods.
type Options struct {
	URL       string // of the kubelet
	TokenFile string // read for each request, since tokens expire; empty: none is sent
	CAFile    string // empty: the machine's certificate authorities
	Verify    bool   // of the kubelet's certificate
	CgroupDir string // where the machine's cgroups are mounted; empty: no inodes are known
	Renew     func() // called when more is known than Find has said
	Now       func() time.Time
	Registry  prometheus.Registerer
	Logger    *slog.Logger
}

// Pods knows the pods of this machine. Its methods may be called from any goroutine.
type Pods struct {
	Options
	client *http.Client
	known  atomic.Pointer[index]
	vain   chan struct{} // has an element if a container was not found

	// Of ask alone, which no two goroutines call at once.
	cgroups cgroups // as they were read last; nil before
	blind   bool    // they could not be read last

	mu      sync.Mutex
	unknown map[string]time.Time // keys that were not found, since when
	crowded time.Time            // when unknown last had no room for a key

	requests *prometheus.CounterVec
	reads    *prometheus.CounterVec
	missed   prometheus.Counter
}

// index has the pod of each container by its id, and by byInode and the inodes of its cgroups, and each pod by its UID.
type index map[string]*mapping.Pod

// listed counts the containers and pods.
func (i index) listed() (n int) {
	for key := range i {
		if !strings.HasPrefix(key, byInode) {
			n++
		}
	}
	return n
}

// New returns Pods that know none until Run asks for them.
func New(o Options) (*Pods, error) {
	security := &tls.Config{InsecureSkipVerify: !o.Verify} // kubelets often sign their own certificates
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kubelet.ca_file: %w", err)
		}
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("kubelet.ca_file: %s has no certificate in PEM", o.CAFile)
		}
	}
	p := &Pods{Options: o, vain: make(chan struct{}, 1), unknown: map[string]time.Time{},
		client: &http.Client{Timeout: requestTime, Transport: &http.Transport{TLSClientConfig: security}},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_kubelet_requests_total",
			Help: "Requests to the kubelet for the pods of this machine, by outcome."}, []string{"outcome"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_kubelet_cgroup_reads_total",
			Help: "Searches for the containers of this machine among its cgroups, by outcome."}, []string{"outcome"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{Name: "freshet_kubelet_unknown_total",
			Help: "New contexts whose container or pod the kubelet had not listed, so that they have no labels of a pod yet."}),
	}
	p.known.Store(&index{})
	for _, of := range []string{outcome(nil), outcome(io.EOF)} {
		p.requests.WithLabelValues(of)
		p.reads.WithLabelValues(of)
	}
	o.Registry.MustRegister(p.requests, p.reads, p.missed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_kubelet_known", Help: "Containers and pods of this machine that are known."},
		func() float64 { return float64(p.known.Load().listed()) }))
	return p, nil
}

// Begin asks the kubelet once, before the first Find: otherwise each start would resolve all contexts without their
// pods, and make series that get no sample afterwards. It waits no longer than beginTime; Run says what failed.
func (p *Pods) Begin() {
	ctx, cancel := context.WithTimeout(context.Background(), beginTime)
	defer cancel()
	_ = p.ask(ctx)
}

// outcome is a label of counters.
func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Find returns the pod of a container, by its id, or else by the inode of its cgroup, or else of a pod's UID; nil if
// none of them is known yet.
func (p *Pods) Find(container, inode, uid []byte) *mapping.Pod {
	if len(container) == 0 && len(inode) > 0 {
		var key [len(byInode) + maxInode]byte
		container = append(append(key[:0], byInode...), inode...)
	}
	all := *p.known.Load()
	if pod := all[string(container)]; pod != nil {
		return pod
	}
	pod := all[string(uid)]
	switch {
	case pod == nil:
		p.missed.Inc()
		p.miss(container, uid)
	case len(container) > 0: // only its name is missing; to look for the UID, too, would find it at each request
		p.miss(container)
	}
	return pod
}

// miss notes that containers or pods were looked for in vain, and lets Run ask for them.
func (p *Pods) miss(keys ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		switch _, noted := p.unknown[string(key)]; {
		case len(key) == 0 || noted:
		case len(p.unknown) < maxUnknown:
			p.unknown[string(key)] = p.Now()
		default:
			p.crowded = p.Now()
		}
	}
	select {
	case p.vain <- struct{}{}:
	default:
	}
}

// Run asks the kubelet at intervals, and soon after a container was not found, until ctx is done.
func (p *Pods) Run(ctx context.Context) error {
	failed := false
	for {
		err := p.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if (err != nil) != failed {
			failed = err != nil
			if failed {
				p.Logger.Error("the kubelet does not say which pods are here: new contexts have no labels of pods", "error", err)
			} else {
				p.Logger.Info("the kubelet says which pods are here again")
			}
		}
		if !p.pause(ctx) {
			return nil
		}
	}
}

// pause waits until the kubelet is to be asked again. It returns false if ctx is done before.
func (p *Pods) pause(ctx context.Context) bool {
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return false
	}
	if p.seeks() {
		return true
	}
	select {
	case <-p.vain:
	case <-time.After(period - wait):
	case <-ctx.Done():
		return false
	}
	return true
}

// seeks reports whether a container that was not found may still be listed soon.
func (p *Pods) seeks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, since := range p.unknown {
		if p.Now().Sub(since) < patience {
			return true
		}
	}
	return false
}

// seeksInode reports whether an inode was not found, or may not have been noted.
func (p *Pods) seeksInode() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Now().Sub(p.crowded) < patience {
		return true
	}
	for key := range p.unknown {
		if strings.HasPrefix(key, byInode) {
			return true
		}
	}
	return false
}

// ask gets all pods of this machine, and calls Renew if Find would answer differently from before.
func (p *Pods) ask(ctx context.Context) error {
	all, err := p.get(ctx)
	p.requests.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return err
	}
	p.addInodes(all)
	before := *p.known.Swap(&all)
	if p.found(before, all) || changed(before, all) {
		p.Renew()
	}
	return nil
}

// found forgets what is not unknown any more, and reports whether there was any. If a key had no room lately, any new
// pod may be its: clients that send wrong ids cost the others no labels.
func (p *Pods) found(before, all index) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	noted := len(p.unknown)
	maps.DeleteFunc(p.unknown, func(key string, since time.Time) bool { return all[key] != nil })
	found := len(p.unknown) < noted
	if p.Now().Sub(p.crowded) < patience {
		for key := range all {
			found = found || before[key] == nil
		}
	}
	if len(p.unknown) == maxUnknown { // room for others
		maps.DeleteFunc(p.unknown, func(_ string, since time.Time) bool { return p.Now().Sub(since) >= patience })
	}
	return found
}

// changed reports whether a pod that was known has other labels.
func changed(before, now index) bool {
	for key, was := range before {
		if is := now[key]; is != nil && !maps.Equal(was.Labels, is.Labels) {
			return true
		}
	}
	return false
}

// get asks the kubelet for all pods of this machine.
func (p *Pods) get(ctx context.Context) (index, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/")+"/pods", nil)
	if err != nil {
		return nil, err
	}
	if p.TokenFile != "" {
		token, err := os.ReadFile(p.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("kubelet.token_file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s answers %s: the service account needs a role that may get nodes/pods", r.URL,
			answer.Status)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", r.URL, answer.Status)
	case len(body) > maxAnswer:
		return nil, errors.New("the kubelet's answer exceeds 64 MiB")
	}
	return parse(body)
}

// container is the status of a container.
type container struct {
	Name string `json:"name"`
	ID   string `json:"containerID"` // such as containerd://0123abcd; empty before its start
}

// parse reads a PodList.
func parse(body []byte) (index, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name      string            `json:"name"`
				Namespace string            `json:"namespace"`
				UID       string            `json:"uid"`
				Labels    map[string]string `json:"labels"`
			} `json:"metadata"`
			Status struct {
				Containers []container `json:"containerStatuses"`
				Init       []container `json:"initContainerStatuses"`
				Ephemeral  []container `json:"ephemeralContainerStatuses"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the kubelet's pods: %w", err)
	}
	all := index{}
	for _, i := range list.Items {
		pod := mapping.Pod{Name: i.Metadata.Name, Namespace: i.Metadata.Namespace, UID: i.Metadata.UID,
			Labels: i.Metadata.Labels}
		if pod.UID != "" {
			all[pod.UID] = &pod
		}
		for _, of := range [][]container{i.Status.Init, i.Status.Ephemeral, i.Status.Containers} {
			for _, c := range of {
				if _, id, found := strings.Cut(c.ID, "://"); found && id != "" {
					in := pod
					in.Container, in.ContainerID = c.Name, id
					all[id] = &in
				}
			}
		}
	}
	return all, nil
}
