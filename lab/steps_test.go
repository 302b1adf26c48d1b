package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestStepsSayWhichFailed(t *testing.T) {
	cause := errors.New("no such peer")
	var done []string
	named := func(what string, err error) step {
		return step{what: what, do: func(context.Context) error { done = append(done, what); return err }}
	}
	err := progress{out: io.Discard}.run(t.Context(),
		[]step{named("first", nil), named("second", cause), named("third", nil)})
	if !errors.Is(err, cause) || err.Error() != "step 2 of 3 failed, second: no such peer" {
		t.Errorf("got the error %v", err)
	}
	if got := strings.Join(done, " "); got != "first second" {
		t.Errorf("the steps %s ran, want first and second", got)
	}
}

// An interruption is reported as such, even if the step returns another error because its receiver dies.
func TestStepsSayThatTheyWereInterrupted(t *testing.T) {
	for what, err := range map[string]error{"a step that then fails": errors.New("connection refused"),
		"a step that ends well": nil} {
		ctx, cancel := context.WithCancel(t.Context())
		got := progress{out: io.Discard}.run(ctx, []step{
			{what: "measure", do: func(context.Context) error { cancel(); return err }},
			{what: "measure more", do: func(context.Context) error { t.Error("a step after the interruption ran"); return nil }},
		})
		if got == nil || got.Error() != "interrupted in step 1 of 2, measure" {
			t.Errorf("%s: got the error %v, want an interruption in step 1", what, got)
		}
	}
}

func TestTimeLeft(t *testing.T) {
	for _, c := range []struct{ left, done, took, want time.Duration }{
		{left: time.Minute, want: time.Minute},
		{left: time.Minute, done: time.Second, took: time.Minute, want: time.Minute}, // too early to judge
		{left: time.Minute, done: time.Minute, took: 2 * time.Minute, want: 2 * time.Minute},
	} {
		if got := corrected(c.left, c.done, c.took); got != c.want {
			t.Errorf("with %v left, and %v of estimated time done in %v: got %v, want %v",
				c.left, c.done, c.took, got, c.want)
		}
	}
}

// Mistakes on the command line are reported before anything is built or measured.
func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Chdir("..")
	for args, want := range map[string]string{
		"quick":                      "quick: is no flag",
		"-quick extra":               "extra: is no flag",
		"-only weather":              "-only weather: no such part",
		"-runs 0":                    "-runs must be 1 or more",
		"-write -quick":              "leave out -quick",
		"-write -runs 4":             "needs all parts and 5 runs",
		"-write -only idle":          "leave out -quick, -only and -runs",
		"-write -only fairness,idle": "leave out -quick, -only and -runs",
		"-write -noisy":              "leave out -noisy",
		"-nonsense":                  "flag provided but not defined: -nonsense",
	} {
		var said bytes.Buffer
		err := run(t.Context(), strings.Fields(args), io.Discard, &said)
		if !errors.Is(err, errUsage) || !strings.Contains(said.String(), want) {
			t.Errorf("%s: got error %v and output %q, want %q", args, err, said.String(), want)
		}
	}
}
