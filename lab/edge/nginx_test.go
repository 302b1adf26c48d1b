package main

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const out = `Running 1s test @ http://127.0.0.1:40001/
  1 threads and 20 connections
  155000 requests in 1.25s, 23.42MB read
Requests/sec:  73864.51
`
	m, err := parse(out, 310*time.Millisecond)
	if want := (measured{rate: 124_000, cpu: 2}); err != nil || m != want {
		t.Errorf("got %+v and the error %v, want %+v", m, err, want)
	}
	for _, wrong := range []string{"", "  Socket errors: connect 1\n" + out, out + "  Non-2xx or 3xx responses: 3\n",
		"0 requests in 1.00s, 0B read"} {
		if m, err := parse(wrong, time.Second); err == nil {
			t.Errorf("parse accepted %q as %+v", wrong, m)
		}
	}
}
