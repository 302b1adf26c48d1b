package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// exportRequest returns a request with one gauge.
func exportRequest() pmetricotlp.ExportRequest {
	m := pmetric.NewMetrics()
	g := m.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	g.SetName("by_otlp")
	p := g.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetIntValue(1)
	p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	return pmetricotlp.NewExportRequestFromMetrics(m)
}

// export sends a request over gRPC. `headers` are pairs of names and values.
func (s *server) export(t *testing.T, c credentials.TransportCredentials, headers ...string) error {
	t.Helper()
	client, err := grpc.NewClient(s.otlp.addr(), grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), headers...), time.Minute)
	defer cancel()
	_, err = pmetricotlp.NewGRPCClient(client).Export(ctx, exportRequest())
	return err
}

// Writes over gRPC are stored for the tenant of their token, like writes over HTTP. Clients without a
// tenant's token are refused.
func TestTenantsByGRPC(t *testing.T) {
	s := twoTenants(t)
	for _, c := range []struct {
		why     string
		headers []string
		want    codes.Code
	}{
		{"a token", []string{"authorization", "Bearer " + alpha}, codes.OK},
		{"a token, in small letters", []string{"authorization", "bearer " + beta}, codes.OK},
		{"a token that may write", []string{"authorization", "Bearer only-write"}, codes.OK},
		{"a token that may read", []string{"authorization", "Bearer only-read"}, codes.PermissionDenied},
		{"no token", nil, codes.Unauthenticated},
		{"an unknown token", []string{"authorization", "Bearer guessed"}, codes.Unauthenticated},
		{"somebody else's tenant", []string{"authorization", "Bearer " + alpha, "x-scope-orgid", "team-beta"},
			codes.PermissionDenied},
		{"its own", []string{"authorization", "Bearer " + alpha, "x-scope-orgid", "team-alpha"}, codes.OK},
	} {
		if err := s.export(t, insecure.NewCredentials(), c.headers...); status.Code(err) != c.want {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	for token, found := range map[string]bool{alpha: true, beta: true, "only-read": false} {
		_, text := s.answer(t, http.MethodGet, "/api/v1/query?query=by_otlp", token, "", true)
		if strings.Contains(text, "by_otlp") != found {
			t.Errorf("as %s: %s", token, text)
		}
	}
	if n := testutil.ToFloat64(s.refused.WithLabelValues("forbidden")); n != 2 {
		t.Errorf("%v requests are counted as forbidden, want 2", n)
	}
}

// TLS and passwords of http.web_config also apply to gRPC. Otherwise clients could evade them at this
// address.
func TestTLSAndPasswordsOfGRPC(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir, 1)
	web := writeIn(t, dir, "web.yaml",
		tlsText+"basic_auth_users: {ann: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi}\n")
	s := running(t, `
data_dir: `+filepath.Join(dir, "data")+`
http: {listen: "127.0.0.1:0", web_config: `+web+`}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	pem, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(pem)
	secure := credentials.NewTLS(&tls.Config{RootCAs: ca})
	basic := func(pair string) []string {
		return []string{"authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))}
	}
	for _, c := range []struct {
		why     string
		by      credentials.TransportCredentials
		headers []string
		want    codes.Code
	}{
		{"with both", secure, basic("ann:fakepassword"), codes.OK},
		{"the same password again, which is now remembered", secure, basic("ann:fakepassword"), codes.OK},
		{"another password", secure, basic("ann:guessed"), codes.Unauthenticated},
		{"another user", secure, basic("bob:fakepassword"), codes.Unauthenticated},
		{"no password", secure, nil, codes.Unauthenticated},
		{"no user, but a password", secure, basic(":fakepassword"), codes.Unauthenticated},
		{"a user without a colon", secure, basic("ann"), codes.Unauthenticated},
		{"without TLS", insecure.NewCredentials(), basic("ann:fakepassword"), codes.Unavailable},
	} {
		if err := s.export(t, c.by, c.headers...); status.Code(err) != c.want {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	writeIn(t, dir, "web.yaml",
		tlsText+"basic_auth_users: {ann: $2y$10$0wZxVzNzMyBBxYBYDmWVauuOFzVvC0mQmcwyQzw3DDHGAHCjIBbSW}\n")
	if err := s.export(t, secure, basic("ann:fakepassword")...); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after a change of the password, a request with the old one returned %v, want Unauthenticated", err)
	}
}

// OTLP over HTTP has two paths, and both accept a request.
func TestRoutesOfOTLP(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	body, err := exportRequest().MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/metrics", "/api/v1/otlp/v1/metrics"} {
		resp, err := http.Post("http://"+s.http[0].addr()+path, "application/x-protobuf", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	_, text := s.answer(t, http.MethodGet, "/api/v1/query?query=by_otlp", "", "", false)
	if !strings.Contains(text, "by_otlp") {
		t.Error(text)
	}
}

func TestTheShortFlagOfOTLP(t *testing.T) {
	code, stdout, stderr := freshet(t, "config", "--otlp-grpc-listen", "127.0.0.1:9")
	if code != command.OK || !strings.Contains(stdout, `grpc_listen: 127.0.0.1:9`) {
		t.Errorf("%d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := freshet(t, "config", "--otlp-grpc-listen", "nowhere"); code != command.Usage &&
		code != command.Failure || !strings.Contains(stderr, "must be HOST:PORT, such as 127.0.0.1:4317") {
		t.Errorf("%d, %s", code, stderr)
	}
}
