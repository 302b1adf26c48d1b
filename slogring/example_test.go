package slogring_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/freshet-io/freshet/slogring"
)

// Warnings and errors are written however often they repeat. At lower levels, only the first records of
// a message are written in a period; the rest are counted.
func ExampleOptions() {
	var file bytes.Buffer
	h := slogring.New(&file, slogring.Options{First: 1, Unsampled: slog.LevelWarn})
	log := slog.New(h)
	for range 3 {
		log.Info("lookup done")
		log.Warn("lookup is slow")
	}
	if err := h.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(strings.Count(file.String(), "lookup is slow"), "warnings,", h.Stats().Suppressed, "suppressed")
	// Output: 3 warnings, 2 suppressed
}

func Example() {
	var file bytes.Buffer // os.Stderr, or a file
	h := slogring.New(&file, slogring.Options{First: 2})
	log := slog.New(h)
	for i := range 1000 {
		log.Info("lookup done", "carrier", "dhl", "routes", i)
	}

	// Call Close before the program ends, so that the last lines are written. The timeout limits the
	// wait for a blocked output.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		fmt.Println(err)
	}

	for line := range strings.Lines(file.String()) {
		_, line, _ = strings.Cut(line, " ") // cut off the time
		fmt.Print(regexp.MustCompile(` within=\S+`).ReplaceAllString(line, ""))
	}
	fmt.Println(h.Stats().Written, "written,", h.Stats().Suppressed, "suppressed,", h.Stats().Lost.Sum(), "lost")
	// Output:
	// level=INFO msg="lookup done" carrier=dhl routes=0
	// level=INFO msg="lookup done" carrier=dhl routes=1
	// level=INFO msg="log records suppressed" count=998 message="lookup done"
	// 2 written, 998 suppressed, 0 lost
}
