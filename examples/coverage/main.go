// Coverage is a lookup service: which carriers take a parcel from one postal code to another? It
// loads all documents into memory, from Elasticsearch or from an export.
//
//	coverage --ndjson coverage.ndjson.gz
//	coverage --elasticsearch http://127.0.0.1:9200 --index coverage
//	coverage generate --documents 1000000 > coverage.ndjson.gz
//
// It is an example of a service that Freshet watches; README.md describes the example. The code for
// the data is in document.go, index.go, load.go and elastic.go, and the code of the service in
// refresh.go, server.go and metrics.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/client"
	"github.com/freshet-io/freshet/slogring"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "generate" {
		err = runGenerate(os.Args[2:])
	} else {
		err = run(ctx, os.Args[1:], os.Stderr, func(net.Addr) {})
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

func runGenerate(args []string) error {
	flags := flag.NewFlagSet("coverage generate", flag.ContinueOnError)
	documents := flags.Int("documents", 1_000_000, "how many documents to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return generate(os.Stdout, *documents)
}

// run runs the service. It calls `listening` when the service can be reached.
func run(ctx context.Context, args []string, logs io.Writer, listening func(net.Addr)) (err error) {
	flags := flag.NewFlagSet("coverage", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "HTTP address")
	path := flags.String("ndjson", "", "export to load, plain or gzip; - is standard input")
	cluster := flags.String("elasticsearch", "",
		"cluster to load from, such as http://host:9200; ELASTICSEARCH_API_KEY may have an API key")
	name := flags.String("index", "coverage", "index of the cluster")
	pageSize := flags.Int("page-size", 2000, "documents per request and slice")
	slices := flags.Int("slices", 4, "slices of the index to read at the same time")
	interval := flags.Duration("refresh-interval", 10*time.Minute, "time between refreshes; 0: only on POST /-/refresh")
	most := flags.Int("max-documents", 5_000_000, "documents in the index, of 32 bytes each; a refresh with more fails")
	mostBad := flags.Int("max-refused", 1000, "invalid documents to skip; a refresh with more fails")
	logRequests := flags.Bool("log-requests", false, "log a line for each request; similar lines are sampled")
	to := flags.String("metrics", "127.0.0.1:8125", "Freshet's DogStatsD address; off: send no metrics")
	if err := flags.Parse(args); err != nil {
		return err
	}

	var from source = ndjson{*path}
	switch {
	case (*path == "") == (*cluster == ""):
		return errors.New("say where to load the documents from: give either --ndjson or --elasticsearch")
	case *path == "-" && *interval != 0:
		return errors.New("--refresh-interval: must be 0 with --ndjson -, because standard input can be read only once")
	case *pageSize < 1 || *pageSize > 10_000:
		return fmt.Errorf("--page-size: %d is not from 1 to 10000, the most that Elasticsearch returns", *pageSize)
	case *slices < 1 || *slices > 64:
		return fmt.Errorf("--slices: %d is not from 1 to 64", *slices)
	case *cluster != "":
		es, err := newElastic(*cluster, os.Getenv("ELASTICSEARCH_API_KEY"), *name)
		if err != nil {
			return err
		}
		es.pageSize, es.slices = *pageSize, *slices
		from = es
	}

	// The log starts first and is closed last, so that it has the lines of all other parts.
	ring := slogring.New(logs, slogring.Options{Unsampled: slog.LevelWarn})
	defer func() {
		patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err = errors.Join(err, ring.Close(patience))
	}()
	log := slog.New(ring)

	sender := client.Discard
	if *to != "off" {
		sender, err = client.NewWithOptions(*to, client.Options{OnError: func(err error) {
			log.Warn("metrics wait", "error", err)
		}})
		if err != nil {
			return err
		}
		defer func() {
			if err := sender.Close(); err != nil { // lost metrics must not fail the service
				log.Warn("metrics are lost", "error", err)
			}
		}()
	}
	m := newMetrics(sender)

	r := newRefresher(from, log, m)
	r.interval, r.most, r.mostBad = *interval, *most, *mostBad
	s := &server{refresher: r, metrics: m, log: log, logRequests: *logRequests}

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log.Info("listening", "address", listener.Addr(), "source", from)
	listening(listener.Addr())

	// Each part ends when ctx is done. If one fails, the others end, too.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	part := func(run func() error) {
		parts.Go(func() {
			if err := run(); err != nil {
				cancel(err)
			}
		})
	}
	part(func() error { return r.run(ctx) })
	part(func() error { m.watch(ctx, r, ring); return nil })
	part(func() error { return s.serve(ctx, listener) })
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	log.Info("stopped", "requests", "all accepted requests are answered")
	return nil
}

// serve answers requests until ctx is done. Then it drains: it is no longer ready, accepts no
// connection, and answers the requests that it has accepted.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      time.Minute, // long enough for POST /-/refresh
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := h.Shutdown(patience)
	<-ended
	return err
}
