package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// writeCertificate writes a self-signed certificate for this machine, and its key.
func writeCertificate(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: "freshet"}, // curl refuses a certificate without a name
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const tlsText = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"

// A command needs the server's CA and a tenant's token. If either is missing, the error says which.
func TestCommandsByTLSAndToken(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir, 1)
	s := running(t, `
data_dir: `+filepath.Join(dir, "data")+`
http:
  listen: "127.0.0.1:0"
  web_config: `+writeIn(t, dir, "web.yaml", tlsText)+`
  tenants_file: `+writeIn(t, dir, "tenants.yaml", tenantsText())+`
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	ca, token := filepath.Join(dir, "cert.pem"), writeIn(t, dir, "token", alpha+"\n")
	address := "https://" + s.http[0].addr()
	for _, tt := range []struct {
		why  string
		args []string
		env  string // value of FRESHET_TOKEN
		want string // a part of the output
	}{
		{"both", []string{"--server", address, "--ca-file", ca, "--token-file", token}, "", "tenant team-alpha since"},
		{"the token in the environment", []string{"--server", address, "--ca-file", ca}, beta, "tenant team-beta since"},
		{"no CA", []string{"--server", address, "--token-file", token}, "",
			"name the file with the server's CA by --ca-file or FRESHET_CA_FILE"},
		{"no token", []string{"--server", address, "--ca-file", ca}, "",
			"not authenticated: the request has no token; send a tenant's token in the header Authorization: Bearer TOKEN; " +
				"put the token in a file and name the file by --token-file, or put the token in FRESHET_TOKEN"},
		{"a CA file without a certificate", []string{"--server", address, "--ca-file", token}, "", "has no certificate"},
		{"a token that is not there", []string{"--server", address, "--ca-file", ca, "--token-file", "/nonexistent"}, "",
			"--token-file: open /nonexistent"},
		{"without TLS", []string{"--server", s.http[0].addr()}, "", "Client sent an HTTP request to an HTTPS server."},
	} {
		t.Setenv(apiclient.TokenVariable, tt.env)
		_, stdout, stderr := freshet(t, append([]string{"ledger"}, tt.args...)...)
		if !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s: %s%s\nwant %s", tt.why, stdout, stderr, tt.want)
		}
	}
}

// Each address has its own web configuration file. If that file has a password, even probes need it.
func TestPasswordOfAnAddress(t *testing.T) {
	dir := t.TempDir()
	web := writeIn(t, dir, "web.yaml",
		"basic_auth_users: {ann: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi}\n")
	s := running(t, `
data_dir: `+filepath.Join(dir, "data")+`
http: {listen: "127.0.0.1:0", listeners: [{listen: "localhost:0", tenant: shop, web_config: `+web+`}]}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	for _, tt := range []struct {
		server int
		user   string
		want   int
	}{{0, "", http.StatusOK}, {1, "", http.StatusUnauthorized}, {1, "ann:fakepassword@", http.StatusOK},
		{1, "ann:guessed@", http.StatusUnauthorized}} {
		resp, err := http.Get("http://" + tt.user + s.http[tt.server].addr() + "/-/ready")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != tt.want {
			t.Errorf("address %d, user %q: got the status %s", tt.server, tt.user, resp.Status)
		}
	}
	code, stdout, stderr := freshet(t, "ledger", "--server", "http://ann:fakepassword@"+s.http[1].addr())
	if code != command.OK || !strings.HasPrefix(stdout, "tenant shop ") {
		t.Errorf("%d, %s%s", code, stdout, stderr)
	}

	var c settings.Config
	c.HTTP.WebConfig, c.HTTP.TenantsFile = web, writeIn(t, dir, "tenants.yaml", tenantsText())
	if err := checkFiles(c); !errors.As(err, new(conf.MistakeError)) ||
		!strings.Contains(err.Error(), "http.web_config: "+web+" has basic_auth_users") {
		t.Errorf("with a password and a token in one header, got the error %v, want one that names http.web_config", err)
	}
	c.HTTP.Listeners = []settings.HTTPListener{{WebConfig: writeIn(t, dir, "broken.yaml",
		"tls_server_config: {cert_file: nowhere.pem}\n")}}
	if err := checkFiles(c); !strings.Contains(err.Error(), "http.listeners[0].web_config: ") ||
		!strings.Contains(err.Error(), "missing one of key or key_file") {
		t.Errorf("with a broken file, got the error %v, want one that names the missing key", err)
	}
	c.Forward.Backends = []settings.Backend{{Name: "a", PasswordFile: "nowhere"},
		{Name: "b", TLS: settings.TLS{CAFile: "nope.pem"}}}
	err := checkFiles(c)
	for _, want := range []string{
		"forward.backends[0].password_file: open nowhere", "forward.backends[1].tls: unable to read CA cert",
	} {
		if !errors.As(err, new(conf.MistakeError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("for a backend whose file is missing, got the error %v, want %q", err, want)
		}
	}
}

// Listeners other than HTTP also use the newest certificates, and accept the same clients.
func TestTLSForOtherListeners(t *testing.T) {
	if none, err := tlsConfig(""); none != nil || err != nil {
		t.Errorf("without a file, tlsConfig returned %v and the error %v, want nil and no error", none, err)
	}
	dir := t.TempDir()
	if none, err := tlsConfig(writeIn(t, dir, "plain.yaml", "")); none != nil || err != nil {
		t.Errorf("for a file that configures no TLS, tlsConfig returned %v and the error %v, want nil and no error",
			none, err)
	}
	writeCertificate(t, dir, 1)
	text := strings.TrimSuffix(tlsText, "}\n") +
		", client_auth_type: RequireAndVerifyClientCert, client_ca_file: cert.pem}\n"
	served, err := tlsConfig(writeIn(t, dir, "web.yaml", text))
	if err != nil {
		t.Fatal(err)
	}
	served.NextProtos = []string{"h2"}
	dial := func(certificates ...tls.Certificate) (serial int64, protocol string, err error) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() {
			server := tls.Server(theirs, served)
			_, _ = io.WriteString(server, "x") // data after the handshake lets the client learn the handshake's result
			server.Close()
		}()
		client := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"},
			Certificates: certificates})
		if _, err := client.Read(make([]byte, 1)); err != nil {
			return 0, "", err
		}
		state := client.ConnectionState()
		return state.PeerCertificates[0].SerialNumber.Int64(), state.NegotiatedProtocol, nil
	}
	for serial := range int64(2) {
		writeCertificate(t, dir, serial+1)
		own, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if got, protocol, err := dial(own); got != serial+1 || protocol != "h2" || err != nil {
			t.Errorf("got certificate %d over the protocol %q, want certificate %d over h2; error %v",
				got, protocol, serial+1, err)
		}
	}
	if _, _, err := dial(); err == nil {
		t.Error("a client without a certificate was served")
	}
}
