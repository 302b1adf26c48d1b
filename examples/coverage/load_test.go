package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

const good = `{"carrier":"acme","service":"express","days":2,"price_cents":1290,"origin":{"from":"01000000",` +
	`"to":"01099999"},"destination":{"from":"20000000","to":"20199999"}}`

func newSink(mostBad int) *sink {
	return &sink{
		builder: newBuilder(0, 1000), mostBad: mostBad, log: slog.New(slog.DiscardHandler), lastReport: time.Now(),
	}
}

func TestParseDocument(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"an unchanged document", "", "", ""},
		{"fields of other programs are ignored", `"days"`, `"tenant":{"x":[1]},"days"`, ""},
		{"no JSON", `{"carrier"`, `{carrier`, "invalid character"},
		{"a carrier must be named", `"acme"`, `""`, "carrier: is missing"},
		{"a name is bounded", `"express"`, `"` + strings.Repeat("x", 65) + `"`,
			"service: has 65 bytes, at most 64 are allowed"},
		{"bytes that are not UTF-8", `"acme"`, "\"a\xff\"", "carrier: \"a�\" is not UTF-8"},
		{"days must be there: 0 would be a promise", `"days":2,`, ``, "days: is missing"},
		{"days are bounded", `"days":2`, `"days":65536`, "days: 65536 is not from 0 to 65535"},
		{"prices are not negative", `1290`, `-1`, "price_cents: -1 is not from"},
		{"a code as a number has lost its leading zero", `"01000000"`, `1000000`, "cannot unmarshal number"},
		{"a short code", `"01099999"`, `"0109999"`, "origin.to: is not a postal code of 8 digits"},
		{"a code with a dash", `"20000000"`, `"20000-00"`, "destination.from: is not"},
		{"a range that ends before it begins", `"20199999"`, `"19999999"`,
			"destination: from = 20000000 is after to = 19999999"},
	} {
		d, err := parseDocument([]byte(strings.Replace(good, c.old, c.new, 1)))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err == nil &&
			d != document{"acme", "express", codeRange{1_000_000, 1_099_999}, codeRange{20_000_000, 20_199_999}, 2, 1290}:
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestLoadNDJSON(t *testing.T) {
	zip := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		fmt.Fprint(w, s)
		w.Close()
		return b.String()
	}
	long := `{"carrier":"` + strings.Repeat("x", 3*maxLine) + `"}`
	for _, c := range []struct {
		name, text     string
		mostBad        int
		documents, bad int
		first, err     string
	}{
		{"plain, without a last line break", good + "\n" + good, 0, 2, 0, "", ""},
		{"compressed", zip(good + "\n" + good + "\n"), 0, 2, 0, "", ""},
		{"empty lines and line breaks of Windows", good + "\r\n\n \r\n" + good + "\r\n", 0, 2, 0, "", ""},
		{"nothing", "", 0, 0, 0, "", ""},
		{"bad lines are counted, and the first is named",
			good + "\n{}\n{\n" + good, 2, 2, 2, "line 2: carrier: is missing", ""},
		{"too many bad lines", good + "\n{}\n{\n" + good, 1, 1, 2, "line 2: carrier: is missing",
			"2 documents are refused, more than --max-refused; the first is line 2"},
		{"a line that is too long spares its neighbours",
			good + "\n" + long + "\n" + good, 1, 2, 1, "line 2: is longer than 65536 bytes", ""},
		{"a truncated file is an error", zip(strings.Repeat(good+"\n", 9))[:90], 9, 0, 0, "", "unexpected EOF"},
	} {
		into := newSink(c.mostBad)
		err := loadNDJSON(context.Background(), strings.NewReader(c.text), into)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		first := ""
		if into.firstBad != nil {
			first = into.firstBad.Error()
		}
		if len(into.builder.rows) != c.documents || into.bad != c.bad || first != c.first {
			t.Errorf("%s: %d documents, %d bad, the first bad one %q; want %d, %d, %q",
				c.name, len(into.builder.rows), into.bad, first, c.documents, c.bad, c.first)
		}
	}
}

func TestGenerateIsTheSameEverywhere(t *testing.T) {
	var a, b bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := generate(out, 2000); err != nil {
			t.Fatal(err)
		}
	}
	into := newSink(0)
	into.builder.most = 2000
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two runs of the generator differ")
	}
	if err := loadNDJSON(context.Background(), &a, into); err != nil || len(into.builder.rows) != 2000 {
		t.Errorf("loaded %d generated documents, want 2000; error %v", len(into.builder.rows), err)
	}
}

// Each line of a file is either an error or a document. A document is within the limits, and stays
// the same if it is written as text and read again.
func FuzzNDJSON(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(good + "\n{}\n\n" + good))
	f.Add([]byte(`{"carrier":"é","service":"\u0000","days":0,"price_cents":4294967295}`))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := parseDocument(text)
		if err == nil {
			if d.origin.from > d.origin.to || d.destination.to > 99_999_999 || d.carrier == "" || len(d.service) > maxName {
				t.Fatalf("%q was accepted as %+v", text, d)
			}
			again, err := parseDocument(fmt.Appendf(nil,
				`{"carrier":%s,"service":%s,"days":%d,"price_cents":%d,"origin":{"from":"%08d","to":"%08d"},`+
					`"destination":{"from":"%08d","to":"%08d"}}`,
				appendString(nil, d.carrier), appendString(nil, d.service), d.days, d.priceCents, d.origin.from, d.origin.to,
				d.destination.from, d.destination.to))
			if err != nil || again != d {
				t.Fatalf("%+v was read back as %+v, error %v", d, again, err)
			}
		}
		into := newSink(1 << 20)
		into.builder.most = 1 << 20
		if err := loadNDJSON(context.Background(), bytes.NewReader(text), into); err == nil &&
			!bytes.HasPrefix(text, []byte("\x1f\x8b")) {
			lines := 0
			for line := range bytes.SplitSeq(text, []byte("\n")) {
				if len(bytes.TrimSpace(line)) > 0 {
					lines++
				}
			}
			if got := len(into.builder.rows) + into.bad; got != lines {
				t.Fatalf("got %d documents and bad lines, want %d", got, lines)
			}
		}
	})
}
