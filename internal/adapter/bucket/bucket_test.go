package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// secret must be in no error.
const secret = "hunter2hunter2hunter2"

// environment sets what AWS' tools read, so that nothing of this machine counts.
func environment(t *testing.T, endpoint string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": secret,
		"AWS_SESSION_TOKEN": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": none,
		"AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL_S3": "",
		"AWS_ENDPOINT_URL": endpoint, "AWS_MAX_ATTEMPTS": "1", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": ""} {
		t.Setenv(name, value)
	}
}

// store starts a server that answers for a store, and opens a bucket of it.
func store(t *testing.T, answer http.HandlerFunc) *Bucket {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return openAt(t, server.URL, time.Minute)
}

func openAt(t *testing.T, endpoint string, silence time.Duration) *Bucket {
	t.Helper()
	environment(t, endpoint)
	b, err := open(t.Context(), "metrics", "", silence)
	if err != nil {
		t.Fatal(err)
	}
	b.pause = 0
	return b
}

// refuse answers as S3 does.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
}

// A listing has at most 1000 keys, and goes on in the next answer.
func TestListingOfPages(t *testing.T) {
	b := store(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/metrics" && r.URL.Path != "/metrics/" || q.Get("list-type") != "2" || q.Get("prefix") != "team/" {
			t.Errorf("asked %s", r.URL)
		}
		more := q.Get("continuation-token") == ""
		fmt.Fprintf(w, `<ListBucketResult><Name>metrics</Name><IsTruncated>%t</IsTruncated>`, more)
		name := "b"
		if more {
			name = "a"
			io.WriteString(w, `<NextContinuationToken>x</NextContinuationToken>`)
		}
		if q.Get("delimiter") == "/" {
			fmt.Fprintf(w, `<CommonPrefixes><Prefix>team/%s/</Prefix></CommonPrefixes>`, name)
		} else {
			fmt.Fprintf(w, `<Contents><Key>team/%s/index</Key><Size>7</Size></Contents>`, name)
		}
		io.WriteString(w, `</ListBucketResult>`)
	})
	if names, err := b.Folders(t.Context(), "team/"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the folders are %q, %v", names, err)
	}
	var all []Object
	err := b.List(t.Context(), "team/", func(o Object) { all = append(all, o) })
	if want := []Object{{"team/a/index", 7}, {"team/b/index", 7}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("listed %v, %v; want %v", all, err, want)
	}
}

// A listing that says that there is more, and not where, would leave blocks out.
func TestAListingIsWholeOrFails(t *testing.T) {
	for _, token := range []string{"", "x"} {
		b := store(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `<ListBucketResult><IsTruncated>true</IsTruncated>
				<NextContinuationToken>%s</NextContinuationToken></ListBucketResult>`, token)
		})
		err := b.List(t.Context(), "", func(Object) {})
		if err == nil || !strings.Contains(err.Error(), "there is more") {
			t.Errorf("with the token %q always: the error is %v", token, err)
		}
	}
}

// Google's store changes Accept-Encoding before it checks the signature, so this header must not be signed. The
// header itself must be there: packed by gzip, an object would have another size.
func TestAcceptEncodingIsNotSigned(t *testing.T) {
	b := store(t, func(w http.ResponseWriter, r *http.Request) {
		signed := r.Header.Get("Authorization")
		if !strings.Contains(signed, "SignedHeaders=") || strings.Contains(signed, "accept-encoding") {
			t.Errorf("%s is signed as %s", r.URL, signed)
		}
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("%s accepts the encoding %q, want identity", r.URL, got)
		}
		io.WriteString(w, `<ListBucketResult/>`)
	})
	if _, err := b.Folders(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(t.Context(), Object{"x", int64(len(`<ListBucketResult/>`))}); err != nil {
		t.Error(err)
	}
}

// content answers with the part of a text that is asked for.
func content(w http.ResponseWriter, r *http.Request, text []byte) {
	w.Header().Set("ETag", `"tag"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// A chunk file has 512 MiB. After a connection broke, only the rest of it is asked for, and only of the same object.
func TestADownloadGoesOnWhereItBroke(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	var asked []string
	b := store(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Range")+" "+r.Header.Get("If-Match"))
		if len(asked) > 2 {
			content(w, r, text)
			return
		}
		part := httptest.NewRecorder()
		content(part, r, text)
		for name, values := range part.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(part.Code)
		w.Write(part.Body.Bytes()[:300_000])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	path, came := filepath.Join(t.TempDir(), "000001"), 0
	err := b.Download(t.Context(), Object{"chunks/000001", int64(len(text))}, path, func(n int) { came += n })
	got, _ := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, text) || came != len(text) {
		t.Errorf("the file has %d bytes, and %d were told, want %d of the object; %v", len(got), came, len(text), err)
	}
	if want := []string{" ", `bytes=300000- "tag"`, `bytes=600000- "tag"`}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// Whatever a store does, a file is whole or its download fails.
func TestADownloadIsWholeOrFails(t *testing.T) {
	const whole = "0123456789"
	broken := func(w http.ResponseWriter) {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, n int)
		want   string
	}{
		{"as listed", func(w http.ResponseWriter, r *http.Request, _ int) { content(w, r, []byte(whole)) }, ""},
		{"shorter than listed", func(w http.ResponseWriter, r *http.Request, _ int) { content(w, r, []byte("012")) },
			"has 3 bytes, and 10 in the listing; it was changed meanwhile"},
		{"longer than listed", func(w http.ResponseWriter, r *http.Request, _ int) { content(w, r, []byte(whole+"x")) },
			"has 11 bytes, and 10 in the listing"},
		{"longer without a length", func(w http.ResponseWriter, _ *http.Request, _ int) {
			io.WriteString(w, "01234")
			http.NewResponseController(w).Flush()
			io.WriteString(w, "56789x")
		}, "has more than the 10 bytes of the listing"},
		{"always the first byte and no more", func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				io.WriteString(w, "0")
			}
			w.Header().Set("Content-Range", "bytes 1-9/10")
			broken(w)
		}, "ended after 1 of 10 bytes"},
		{"a store without ranges", func(w http.ResponseWriter, _ *http.Request, _ int) {
			io.WriteString(w, "01")
			broken(w)
		}, "when asked for bytes from 2 on"},
		{"replaced meanwhile", func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				io.WriteString(w, "01")
				broken(w)
			}
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "no")
		}, "it was changed meanwhile"},
	} {
		n := atomic.Int32{}
		b := store(t, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, int(n.Add(1))) })
		got, err := b.Read(t.Context(), Object{"x", int64(len(whole))})
		if c.want == "" && (err != nil || string(got) != whole) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		} else if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "get s3://metrics/x")) {
			t.Errorf("%s: the error is %v, want %s", c.name, err, c.want)
		}
	}
}

// A store that falls silent within an object does not hold up the command for ever.
func TestASilentStore(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_ = http.NewResponseController(w).Flush() // fails if the client has left
		<-r.Context().Done()
	}))
	defer server.Close()
	begun := time.Now()
	_, err := openAt(t, server.URL, 50*time.Millisecond).Read(t.Context(), Object{"x", 10})
	if waited := time.Since(begun); err == nil || waited > 30*time.Second {
		t.Errorf("after %s of %d tries of 50 ms, the error is %v", waited, vainTries, err)
	}
}

// Each error of a store names the bucket and what to do, and no secret. Those that every request would get end an
// import.
func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		status                int
		code, message, region string
		want                  string
		refused               bool
	}{
		{403, "AccessDenied", "Access Denied.", "", "AccessDenied: Access Denied; the credentials need s3:ListBucket on " +
			"arn:aws:s3:::metrics and s3:GetObject on arn:aws:s3:::metrics/*", true},
		{403, "InvalidAccessKeyId", "unknown", "", "see AWS_ACCESS_KEY_ID", true},
		{403, "SignatureDoesNotMatch", "no", "", "see AWS_SECRET_ACCESS_KEY", true},
		{403, "RequestTimeTooSkewed", "late", "", "set the clock", true},
		{400, "ExpiredToken", "expired", "", "get new credentials", true},
		{404, "NoSuchBucket", "none", "", "has no bucket of this name", true},
		{301, "PermanentRedirect", "elsewhere", "eu-west-1", "set AWS_REGION=eu-west-1", true},
		{400, "AuthorizationHeaderMalformed", "expecting 'eu-west-1'", "", "set AWS_REGION=REGION", true},
		{404, "NoSuchKey", "none", "", "it was deleted meanwhile", false},
		{403, "InvalidObjectState", "cold", "", "the object is archived", false},
		{500, "InternalError", "try\nagain", "", "InternalError: try again", false},
	} {
		b := store(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Bucket-Region", c.region)
			refuse(w, c.status, c.code, c.message)
		})
		_, get := b.Read(t.Context(), Object{"team/x", 1})
		_, list := b.Folders(t.Context(), "team/")
		for where, err := range map[string]error{"get s3://metrics/team/x: ": get, "list s3://metrics/team/: ": list} {
			if err == nil || !strings.HasPrefix(err.Error(), where) || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error is %v, want %s%s", c.code, err, where, c.want)
			}
			if errors.Is(err, ErrRefused) != c.refused || errors.As(err, new(conf.MistakeError)) != c.refused {
				t.Errorf("%s: %v ends an import: %t, want %t", c.code, err, !c.refused, c.refused)
			}
		}
		if errors.Is(get, ErrGone) != (c.code == "NoSuchKey") {
			t.Errorf("%s: %v means that it is gone: %t", c.code, get, errors.Is(get, ErrGone))
		}
	}
	b := store(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>not found", http.StatusNotFound) })
	if _, err := b.Folders(t.Context(), ""); err == nil ||
		!strings.Contains(err.Error(), "not that of an S3-compatible store") {
		t.Errorf("the error of a server that is no store: %v", err)
	}
	dead := httptest.NewServer(nil)
	dead.Close()
	b = openAt(t, dead.URL, time.Minute)
	if _, err := b.Folders(t.Context(), ""); err == nil ||
		!strings.HasPrefix(err.Error(), "list s3://metrics/: ask "+dead.URL+": dial tcp ") {
		t.Errorf("the error of a server that is down: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Folders(ctx, ""); err == nil || err.Error() != "list s3://metrics/: context canceled" {
		t.Errorf("the error of an interrupted command: %v", err)
	}
}

func TestSettingsThatAreMissing(t *testing.T) {
	for _, c := range []struct {
		name, endpoint string
		set            map[string]string
		want           string
	}{
		{"no region", "", nil, "set AWS_REGION"},
		{"a region", "", map[string]string{"AWS_REGION": "eu-west-1"}, ""},
		{"an endpoint needs no region", "http://127.0.0.1:1", nil, ""},
		{"no credentials", "http://127.0.0.1:1", map[string]string{"AWS_ACCESS_KEY_ID": ""},
			"no credentials: set AWS_ACCESS_KEY_ID"},
		{"no such profile", "http://127.0.0.1:1", map[string]string{"AWS_PROFILE": "other"}, "settings of AWS: "},
		{"an endpoint without a scheme", "minio:9000", nil, "write it like https://minio:9000"},
		{"an endpoint with a password", "http://key:" + secret + "@minio:9000", nil, "may have no credentials"},
		{"the same in the environment", "", map[string]string{"AWS_ENDPOINT_URL": "http://key:" + secret + "@minio"},
			"may have no credentials"},
	} {
		environment(t, "")
		for name, value := range c.set {
			t.Setenv(name, value)
		}
		_, err := Open(t.Context(), "metrics", c.endpoint)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			!errors.As(err, new(conf.MistakeError)) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: the error is %v, want %s", c.name, err, c.want)
		}
	}
}

// Without credentials, the SDK asks the machine for its role, and printed to standard error how that went.
func TestTheSDKPrintsNothing(t *testing.T) {
	machine := httptest.NewServer(http.NotFoundHandler())
	defer machine.Close()
	environment(t, "http://127.0.0.1:1")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.URL} {
		t.Setenv(name, value)
	}
	printed, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	before := os.Stderr
	os.Stderr = printed
	_, err = Open(t.Context(), "metrics", "")
	os.Stderr = before
	if err == nil || !strings.HasPrefix(err.Error(), "no credentials: ") {
		t.Errorf("the error is %v", err)
	}
	if text, err := os.ReadFile(printed.Name()); err != nil || len(text) > 0 {
		t.Errorf("printed %q, %v", text, err)
	}
}

// Two stores may be set: --s3-endpoint is for the blocks alone.
func TestTheEndpointThatIsGiven(t *testing.T) {
	environment(t, "http://127.0.0.1:1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/metrics") || !strings.Contains(r.Header.Get("Authorization"), "/us-east-1/s3/") {
			t.Errorf("asked %s with %s", r.URL, r.Header.Get("Authorization"))
		}
		io.WriteString(w, `<ListBucketResult/>`)
	}))
	defer server.Close()
	// A name, since the SDK puts the bucket into the path of an IP address anyway.
	b, err := Open(t.Context(), "metrics", strings.Replace(server.URL, "127.0.0.1", "localhost", 1))
	if err == nil {
		_, err = b.Folders(t.Context(), "")
	}
	if err != nil {
		t.Error(err)
	}
}
