package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

const (
	defaultServer = "http://127.0.0.1:7125"

	// askTimeout is longer than what a server gives to a query (2 min), so that
	// its own error arrives.
	askTimeout = 150 * time.Second
)

// Variables in place of flags, for the commands that ask a server.
const (
	serverVariable = "FRESHET_SERVER"
	tokenVariable  = "FRESHET_TOKEN" // the token itself: no flag, since others see those
	caVariable     = "FRESHET_CA_FILE"
)

// remote is a server to ask, and what it takes to be answered.
type remote struct {
	address   string // empty for the server of this machine
	tokenFile string // empty for tokenVariable
	caFile    string // empty for the CAs of the system
}

// String is the address without a password that may stand in it.
func (r remote) String() string {
	address := r.found().address
	if strings.HasPrefix(address, bySocket) {
		return address
	}
	return conf.ShowURL(withScheme(address))
}

// withScheme is the URL of a server that is named by HOST:PORT.
func withScheme(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// bySocket begins the address of an operator.sock.
const bySocket = "unix:"

// found has an address: where none is given, that of the server of this machine.
func (r remote) found() remote {
	if r.address != "" {
		return r
	}
	r.address = defaultServer
	if path := operatorSocketHere(); path != "" {
		r.address = bySocket + path
	}
	return r
}

// serverFlag adds --server, and what goes with it, to a command that asks a server.
func serverFlag(cmd *cobra.Command) *remote {
	r := new(remote)
	cmd.Flags().StringVar(&r.address, "server", os.Getenv(serverVariable), "`address` of the server to ask, HOST:PORT, a URL or unix:PATH of its operator.sock; also "+serverVariable+
		"; by default the operator.sock in FRESHET_DATA_DIR, ./data (if they are yours or root's) or "+packagedData+", or else "+defaultServer)
	r.credentialFlags(cmd.Flags())
	return r
}

// credentialFlags adds what a server may want to know of who asks, and he of it.
func (r *remote) credentialFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.tokenFile, "token-file", "", "`file` with the token of a tenant or an operator; or have the token in "+tokenVariable)
	flags.StringVar(&r.caFile, "ca-file", os.Getenv(caVariable), "`file` with the CA of an https server; also "+caVariable)
}

// token returns the tenant's token, empty for none.
func (r remote) token() (string, error) {
	if r.tokenFile == "" {
		return os.Getenv(tokenVariable), nil
	}
	text, err := os.ReadFile(r.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// client returns what sends requests.
func (r remote) client() (*http.Client, error) {
	if path, ok := strings.CutPrefix(r.address, bySocket); ok {
		return overSocket(path), nil
	}
	if r.caFile == "" {
		return http.DefaultClient, nil
	}
	text, err := os.ReadFile(r.caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca-file = %s: has no certificate; name a file in PEM form", r.caFile)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: cas}
	transport.DisableKeepAlives = true // the next request has a client of its own
	return &http.Client{Transport: transport}, nil
}

// answer is what a Prometheus API wraps around its data.
type answer struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

// get begins to ask the server for path. The body must be closed.
func get(ctx context.Context, server remote, path string, params url.Values) (*http.Response, error) {
	return request(ctx, http.MethodGet, server, path, params, nil)
}

// post sends a body, nil for none, to path. The answer may take as long as it
// needs; its body must be closed.
func post(ctx context.Context, server remote, path string, params url.Values, body io.Reader) (*http.Response, error) {
	return request(ctx, http.MethodPost, server, path, params, body)
}

func request(ctx context.Context, method string, from remote, path string, params url.Values, body io.Reader) (*http.Response, error) {
	from = from.found()
	server := strings.TrimSuffix(from.String(), "/")
	base := "http://localhost" // operator.sock leads to one server
	if !strings.HasPrefix(from.address, bySocket) {
		base = strings.TrimSuffix(withScheme(from.address), "/")
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path+"?"+params.Encode(), body)
	if err != nil {
		return nil, mistakeError{fmt.Errorf("--server = %s: is not an address; write it like %s", server, defaultServer)}
	}
	token, err := from.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client, err := from.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		cause := err
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			cause = wrapped.Err // the whole URL is no help
		}
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			return nil, fmt.Errorf("ask %s: %w; name the file with its CA by --ca-file or %s", server, cause, caVariable)
		}
		return nil, fmt.Errorf("ask %s: %w; is `freshet serve` running there? Start it, or name another server by --server or FRESHET_SERVER", server, cause)
	}
	return resp, nil
}

// follow gets path, whose answer goes on until ctx is done or the server stops.
// The body must be closed.
func follow(ctx context.Context, server remote, path string, params url.Values) (io.ReadCloser, error) {
	resp, err := get(ctx, server, path, params)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refusal(server, resp)
}

// refusal is what a server said in place of what it was asked for.
func refusal(server remote, resp *http.Response) error {
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what came of it is better than nothing
	var a answer
	if json.Unmarshal(why, &a) == nil && a.Error != "" {
		return a.failure(resp)
	}
	return mistake(resp, fmt.Errorf("ask %s: answered %s: %s", server, resp.Status, bytes.TrimSpace(why)))
}

// mistakeError is a mistake in what a command was told to ask, which the server has found.
type mistakeError struct{ error }

func (e mistakeError) Unwrap() error { return e.error }

// mistake is err as the server means it.
func mistake(resp *http.Response, err error) error {
	if resp.StatusCode == http.StatusBadRequest {
		return mistakeError{err}
	}
	return err
}

// ask gets path from the server and returns the body as it came, and its parts.
func ask(ctx context.Context, server remote, path string, params url.Values) ([]byte, answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := get(ctx, server, path, params)
	if err != nil {
		return nil, answer{}, err
	}
	return readAnswer(server, resp)
}

// readAnswer reads what a server answered and closes it.
func readAnswer(server remote, resp *http.Response) ([]byte, answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, answer{}, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || a.Status == "" {
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden: // what stands in front of the API says why
			return nil, answer{}, mistake(resp, fmt.Errorf("ask %s: answered %s: %.600q", server, resp.Status, bytes.TrimSpace(body)))
		}
		return nil, answer{}, fmt.Errorf("ask %s: answered %s, and not as a Prometheus API does; is it the address of a freshet server?", server, resp.Status)
	}
	if a.Status != "success" {
		return nil, answer{}, a.failure(resp)
	}
	return body, a, nil
}

// failure is what went wrong, in the server's words.
func (a answer) failure(resp *http.Response) error {
	if a.ErrorType == "unauthorized" {
		return fmt.Errorf("%s; have the token in a file and name it by --token-file, or in %s", a.Error, tokenVariable)
	}
	return mistake(resp, fmt.Errorf("%s: %s", a.ErrorType, a.Error))
}

// printNotes prints what the server had to say about its answer.
func (a answer) printNotes(w io.Writer) {
	for _, text := range a.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	for _, text := range a.Infos {
		fmt.Fprintf(w, "note: %s\n", text)
	}
}

// printJSON prints v as a line of JSON that cannot steer a terminal.
func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return terminal.WriteJSON(w, text)
}

// durationFlag adds a flag that is read as durations in the configuration are.
func durationFlag(flags *pflag.FlagSet, name string, preset time.Duration, help string) *time.Duration {
	d := preset
	flags.Func(name, help, func(text string) error {
		read, err := conf.ParseDuration(text)
		if err == nil && read < time.Millisecond {
			err = errors.New("is too short; write at least 1ms")
		}
		d = read
		return err
	})
	return &d
}

// timeFlag adds a flag for an instant; the zero time stands for now.
func timeFlag(flags *pflag.FlagSet, name, help string) *time.Time {
	var t time.Time
	flags.Func(name, help, func(text string) error {
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1<<33 {
			t = time.UnixMilli(int64(seconds * 1000))
			return nil
		}
		read, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("is not a time; write Unix seconds or 2006-01-02T15:04:05Z")
		}
		t = read
		return nil
	})
	return &t
}

// unixSeconds writes t as the API takes it.
func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}
