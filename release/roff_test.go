package main

import (
	"maps"
	"os/exec"
	"strings"
	"testing"
)

// A man page says what its document says. Text never becomes a request of roff, and commands can be copied.
func TestDocumentsAreManPages(t *testing.T) {
	got := string(document{name: "freshet-x", section: 7, summary: "an x"}.roff([]byte(`# The x

Run `+"`freshet x --y`"+` *now*, see [names](names.md) and
[the web](https://web.example/a-b).

<!-- not run: it is a test -->
`+"```sh\n.hidden 'a\\b'\n```"+`

## First 'part'

1. one
2. two

   more

| key | default | |
|---|---|---|
| `+"`a.b`"+` | 1s | how long |
`), real.time))
	head, body, _ := strings.Cut(got, "\n")
	if !strings.HasPrefix(head, `.TH "FRESHET-X" "7" "`) {
		t.Errorf("the page begins with %s", head)
	}
	want := `.ad l
.SH NAME
freshet\-x \- an x
.SH DESCRIPTION
.PP
Run \fBfreshet x \-\-y\fR \fInow\fR, see names and the web (https://web.example/a\-b).
.PP
.RS 4
.nf
\&.hidden \(aqa\eb\(aq
.fi
.RE
.SH FIRST \(aqPART\(aq
.IP 1. 4
one
.IP 2. 4
two
.RS 4
.PP
more
.RE
.TP
\fBa.b\fR
default: 1s
.br
how long
`
	if body != want {
		t.Errorf("the page is\n%s\nwant\n%s", body, want)
	}
}

// groff prints the pages without a warning.
func TestManPagesAreValid(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Fatalf("%v; .ci/packages release installs it", err)
	}
	pages, err := docPages("..", real.time)
	check(t, err)
	ofCommands, err := manPages(real.time)
	check(t, err)
	maps.Copy(pages, ofCommands)
	for name, text := range pages {
		// -W break: the default of a flag may be a word that is longer than half a line
		cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-W", "break", "-z", "-Kutf8")
		cmd.Stdin = strings.NewReader(string(text))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%.2000s", name, err, out)
		}
	}
}
