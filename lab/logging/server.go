package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/slogring"
)

// linesARequest is the number of lines that the handler logs for a request.
const linesARequest = 3

// counts are a server's figures about itself since its start.
type counts struct {
	Requests uint64
	InLog    time.Duration // time of all requests in the logger: formatting, waiting and writing
	CPU      time.Duration // CPU time of the process
	GC       float64       // CPU seconds of garbage collection, up to the last collection
	User     float64       // like GC, but of the program's own code
	Waited   float64       // seconds that goroutines waited for a sync.Mutex
	Stats    *slogring.Stats
}

// route is one answer to a lookup.
type route struct {
	Carrier string `json:"carrier"`
	Service string `json:"service"`
	Days    int    `json:"days"`
	Price   int    `json:"price"`
}

const places = 300 // origins, and as many destinations: 90,000 pairs

// service is the lookup service: everything is in memory.
type service struct {
	routes   map[string][]route
	log      logger
	requests atomic.Uint64
	inLog    atomic.Int64
}

func newService(log logger) *service {
	s := &service{log: log, routes: map[string][]route{}}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range places * places {
		routes := make([]route, 1+rng.IntN(4))
		for i := range routes {
			routes[i] = route{
				fmt.Sprint("carrier-", rng.IntN(20)), []string{"standard", "express"}[rng.IntN(2)], 1 + rng.IntN(9),
				500 + rng.IntN(5000),
			}
		}
		s.routes[key(strconv.Itoa(i/places), strconv.Itoa(i%places))] = routes
	}
	return s
}

func key(origin, destination string) string { return origin + "-" + destination }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	query := r.URL.Query()
	origin, destination := query.Get("origin"), query.Get("destination")
	inLog := s.timed(func() { s.log.received(r.Method, r.URL.Path, origin, destination) })

	routes, found := s.routes[key(origin, destination)]
	cheapest := ""
	price := 0
	for _, route := range routes {
		if cheapest == "" || route.Price < price {
			cheapest, price = route.Carrier, route.Price
		}
	}
	inLog += s.timed(func() { s.log.found(len(routes), cheapest, found) })

	body, err := json.Marshal(routes)
	status := http.StatusOK
	if err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
	inLog += s.timed(func() { s.log.done(status, len(body), time.Since(begun)) })
	s.requests.Add(1)
	s.inLog.Add(int64(inLog))
}

func (s *service) timed(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

func (s *service) counts(h *slogring.Handler) counts {
	samples := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/user:cpu-seconds"},
		{Name: "/sync/mutex/wait/total:seconds"},
	}
	metrics.Read(samples)
	c := counts{
		Requests: s.requests.Load(), InLog: time.Duration(s.inLog.Load()),
		GC: samples[0].Value.Float64(), User: samples[1].Value.Float64(), Waited: samples[2].Value.Float64(),
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		c.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if h != nil {
		stats := h.Stats()
		c.Stats = &stats
	}
	return c
}

// serve runs in the server's process, and returns when standard input ends.
func serve(name string, out *os.File) error {
	if runtime.GOMAXPROCS(0) != 2 {
		return fmt.Errorf("GOMAXPROCS is %d, and should be 2", runtime.GOMAXPROCS(0))
	}
	log, h := newLogger(name, out)
	s := newService(log)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/coverage", s)
	mux.HandleFunc("/counts", func(w http.ResponseWriter, r *http.Request) {
		if h != nil && r.URL.Query().Has("close") {
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			_ = h.Close(ctx) // if the output is blocked, the counts show it
		}
		_ = json.NewEncoder(w).Encode(s.counts(h)) // an error means that the client has gone
	})
	fmt.Println(listener.Addr())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns at any data, end or error
		os.Exit(0)
	}()
	return http.Serve(listener, mux)
}
