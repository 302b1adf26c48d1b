// Package apiclient sends the commands' requests to a Freshet server's HTTP API: it finds the
// server of this machine, sends the user's token, and explains errors. The commands interpret
// the answers.
package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

const (
	// DefaultServer is the address that commands use if they find no operator.sock.
	DefaultServer = "http://127.0.0.1:7125"

	// Timeout exceeds the server's limit for a query (2 min), so that the server's own error
	// arrives.
	Timeout = 150 * time.Second
)

// Environment variables for the flags of commands that send requests to a server.
const (
	ServerVariable = "FRESHET_SERVER"
	TokenVariable  = "FRESHET_TOKEN" // the token itself; a flag would show it to other users
	CAVariable     = "FRESHET_CA_FILE"
)

// Server says where commands send their requests, and with which credentials.
type Server struct {
	Address   string // empty for the server of this machine
	TokenFile string // if empty, TokenVariable may hold a token
	CAFile    string // if empty, the system's CAs apply
}

// Flags adds --server and the related flags to a command.
func Flags(flags *pflag.FlagSet) *Server {
	s := new(Server)
	flags.StringVar(&s.Address, "server", os.Getenv(ServerVariable),
		"`address` of the server: HOST:PORT, a URL or unix:PATH of its operator.sock; also "+ServerVariable+
			"; by default the operator.sock in FRESHET_DATA_DIR, ./data (if they are yours or root's) or "+
			answer.PackagedDataDir+", else "+DefaultServer)
	s.CredentialFlags(flags)
	return s
}

// CredentialFlags adds the flags for the token and the server's CA.
func (s *Server) CredentialFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.TokenFile, "token-file", "",
		"`file` with the token of a tenant or an operator; or put the token in "+TokenVariable)
	flags.StringVar(&s.CAFile, "ca-file", os.Getenv(CAVariable), "`file` with the CA of an https server; also "+CAVariable)
}

// String returns the address without any password in it.
func (s Server) String() string {
	address := s.found().Address
	if strings.HasPrefix(address, bySocket) {
		return address
	}
	return conf.ShowURL(WithScheme(address))
}

// WithScheme returns the URL of a server that is given as HOST:PORT.
func WithScheme(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// Token returns the user's token, or "" if there is none.
func (s Server) Token() (string, error) {
	if s.TokenFile == "" {
		return os.Getenv(TokenVariable), nil
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Client returns the client for requests.
func (s Server) Client() (*http.Client, error) {
	if path, ok := strings.CutPrefix(s.Address, bySocket); ok {
		return OverSocket(path), nil
	}
	if s.CAFile == "" {
		return http.DefaultClient, nil
	}
	text, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca-file = %s: has no certificate; give a file in PEM form", s.CAFile)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: cas}
	transport.DisableKeepAlives = true // each request has its own client and connection
	return &http.Client{Transport: transport}, nil
}

// Get requests `path` from the server. The caller closes the body.
func (s Server) Get(ctx context.Context, path string, params url.Values) (*http.Response, error) {
	return s.Do(ctx, http.MethodGet, path, params, nil, nil)
}

// Post sends `body` to `path`; a nil body is empty. It waits for the answer without a time limit.
// The caller closes the body.
func (s Server) Post(ctx context.Context, path string, params url.Values, body io.Reader) (*http.Response, error) {
	return s.Do(ctx, http.MethodPost, path, params, nil, body)
}

// Follow gets `path` and returns the body of the answer, which continues until ctx is done or the
// server stops. The caller closes the body.
func (s Server) Follow(ctx context.Context, path string, params url.Values) (io.ReadCloser, error) {
	resp, err := s.Get(ctx, path, params)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, s.Refusal(resp)
}

// Ask gets `path` from the server and returns the raw body and the decoded answer.
func (s Server) Ask(ctx context.Context, path string, params url.Values) ([]byte, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	resp, err := s.Get(ctx, path, params)
	if err != nil {
		return nil, Answer{}, err
	}
	return s.Read(resp)
}

// Do sends a request with any method, and with more headers. The caller closes the body of the answer.
func (s Server) Do(ctx context.Context, method, path string, params url.Values, header http.Header,
	body io.Reader) (*http.Response, error) {
	s = s.found()
	shown := strings.TrimSuffix(s.String(), "/")
	base := "http://localhost" // the host is arbitrary: an operator.sock leads to one server only
	if !strings.HasPrefix(s.Address, bySocket) {
		base = strings.TrimSuffix(WithScheme(s.Address), "/")
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path+"?"+params.Encode(), body)
	if err != nil {
		return nil, conf.Mistake(fmt.Errorf("--server = %s: is not an address; write it like %s", shown, DefaultServer))
	}
	req.Header.Set("User-Agent", build.UserAgent()) // which servers list: see freshet queries
	maps.Copy(req.Header, header)
	token, err := s.Token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		cause := err
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			cause = wrapped.Err // the message already names the URL, as `shown`
		}
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			return nil, fmt.Errorf("ask %s: %w; name the file with the server's CA by --ca-file or %s", shown, cause, CAVariable)
		}
		return nil,
			fmt.Errorf("ask %s: %w; is `freshet serve` running there? Start it, or name another server by --server "+
				"or FRESHET_SERVER", shown, cause)
	}
	return resp, nil
}

// Answer is the envelope of a Prometheus API.
type Answer struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

// Read reads the server's answer and closes its body.
func (s Server) Read(resp *http.Response) ([]byte, Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, Answer{}, fmt.Errorf("read the answer of %s: %w", s, err)
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil || a.Status == "" {
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
			// The body has the reason, from a proxy or the access check.
			return nil, Answer{}, mistake(resp, fmt.Errorf("ask %s: answered %s: %.600q", s, resp.Status, bytes.TrimSpace(body)))
		}
		return nil, Answer{},
			fmt.Errorf("ask %s: answered %s, but not as a Prometheus API does; is this the address of a freshet server?",
				s, resp.Status)
	}
	if a.Status != "success" {
		return nil, Answer{}, a.failure(resp)
	}
	return body, a, nil
}

// Refusal returns the error of an answer that has no data.
func (s Server) Refusal(resp *http.Response) error {
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // if the read fails, show the part that was read
	var a Answer
	if json.Unmarshal(why, &a) == nil && a.Error != "" {
		return a.failure(resp)
	}
	return mistake(resp, fmt.Errorf("ask %s: answered %s: %s", s, resp.Status, bytes.TrimSpace(why)))
}

// failure returns the server's error.
func (a Answer) failure(resp *http.Response) error {
	if a.ErrorType == "unauthorized" {
		return fmt.Errorf("%s; put the token in a file and name the file by --token-file, or put the token in %s",
			a.Error, TokenVariable)
	}
	return mistake(resp, Refused{a.ErrorType, a.Error})
}

// Refused is an error that the server's API gave. Its types are those of Prometheus' API.
type Refused struct{ Type, Text string }

func (r Refused) Error() string { return r.Type + ": " + r.Text }

// mistake marks err as the user's mistake if the status says so.
func mistake(resp *http.Response, err error) error {
	if resp.StatusCode == http.StatusBadRequest {
		return conf.Mistake(err)
	}
	return err
}

// PrintNotes prints the server's remarks about its answer.
func (a Answer) PrintNotes(w io.Writer) {
	for _, text := range a.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	for _, text := range a.Infos {
		fmt.Fprintf(w, "note: %s\n", text)
	}
}
