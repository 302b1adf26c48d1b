// Coverage is a lookup service: which carriers take a parcel from one postal code to
// another? All documents are held in memory, and come from Elasticsearch or from an export.
//
//	coverage --ndjson coverage.ndjson.gz
//	coverage --elasticsearch http://127.0.0.1:9200 --index coverage
//	coverage generate --documents 1000000 > coverage.ndjson.gz
//
// It is an example of a service that Freshet watches: README.md says what it shows. Read
// document.go, index.go, load.go and elastic.go for the data; refresh.go, server.go and
// metrics.go for the service.
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
	documents := flags.Int("documents", 1_000_000, "how many to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return generate(os.Stdout, *documents)
}

// run is the service. It calls listening once it can be reached.
func run(ctx context.Context, args []string, logs io.Writer, listening func(net.Addr)) (err error) {
	flags := flag.NewFlagSet("coverage", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address for HTTP")
	path := flags.String("ndjson", "", "export to load, plain or gzip; - is the standard input")
	cluster := flags.String("elasticsearch", "",
		"cluster to load from, as http://host:9200; a key is taken from ELASTICSEARCH_API_KEY")
	name := flags.String("index", "coverage", "index of the cluster")
	pageSize := flags.Int("page-size", 2000, "documents that are asked of the cluster at once, by each slice")
	slices := flags.Int("slices", 4, "slices of the index that are read at once")
	interval := flags.Duration("refresh-interval", 10*time.Minute, "time between refreshes; 0: only by POST /-/refresh")
	most := flags.Int("max-documents", 5_000_000, "documents in the index, of 32 bytes each; more fail the refresh")
	mostBad := flags.Int("max-refused", 1000, "documents that may be invalid; more fail the refresh")
	logRequests := flags.Bool("log-requests", false, "log a line for each request; repeats are sampled")
	to := flags.String("metrics", "127.0.0.1:8125", "Freshet's DogStatsD address; off: send none")
	if err := flags.Parse(args); err != nil {
		return err
	}

	var from source = ndjson{*path}
	switch {
	case (*path == "") == (*cluster == ""):
		return errors.New("where are the documents? give one of --ndjson and --elasticsearch")
	case *path == "-" && *interval != 0:
		return errors.New("--refresh-interval: the standard input can be read once; set it to 0 with --ndjson -")
	case *pageSize < 1 || *pageSize > 10_000:
		return fmt.Errorf("--page-size: %d is not in 1 to 10000, which is the most that Elasticsearch gives", *pageSize)
	case *slices < 1 || *slices > 64:
		return fmt.Errorf("--slices: %d is not in 1 to 64", *slices)
	case *cluster != "":
		es, err := newElastic(*cluster, os.Getenv("ELASTICSEARCH_API_KEY"), *name)
		if err != nil {
			return err
		}
		es.pageSize, es.slices = *pageSize, *slices
		from = es
	}

	// The log comes first and ends last: until its Close it has the lines of all others.
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
			if err := sender.Close(); err != nil { // no reason for a service to fail
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

	// Each part ends with ctx, and ends the others if it fails.
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
	log.Info("stopped", "requests", "all that were taken on are answered")
	return nil
}

// serve answers until ctx is done. Then it drains: it is not ready any more, takes no
// connection, and finishes what it took on.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      time.Minute, // a refresh that is waited for
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
