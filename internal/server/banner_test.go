package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writeSigned writes a CA, and a certificate and key for a server, signed by this CA. The
// certificate is only for `name`, which does not resolve.
func writeSigned(t *testing.T, dir, name string) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeIn(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeIn(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// A user who pastes the printed lines gets an answer, whatever the server demands of its clients. The
// test runs the lines in a shell, with a real curl and this program's commands. The banner contains no
// secrets.
func TestTheBannerCanBePasted(t *testing.T) {
	// The password is fakepassword.
	const passwords = "basic_auth_users: {ann: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi}\n"
	for _, c := range []struct {
		name    string
		signed  string // name in a certificate signed by a CA; empty for a self-signed certificate
		web     string
		tenants bool
		flags   []string // expected flags of curl
		instead string   // start of the comment in place of the command freshet query; empty if the command works
	}{
		{name: "nothing"},
		{name: "a token", tenants: true, flags: []string{"Authorization: Bearer $FRESHET_TOKEN"}},
		{name: "its own CA", web: tlsText, flags: []string{"--cacert "}},
		{name: "a self-signed certificate and a token", web: tlsText, tenants: true,
			flags: []string{"--cacert ", "Authorization: Bearer $FRESHET_TOKEN"}},
		{name: "a name that resolves elsewhere", web: tlsText, signed: "metrics.example",
			flags:   []string{"--cacert ", "--resolve metrics.example:"},
			instead: "# once metrics.example resolves to 127.0.0.1: "},
		{name: "names of a domain", web: tlsText, signed: "*.metrics.example",
			flags:   []string{"--cacert ", "--resolve freshet.metrics.example:"},
			instead: "# once freshet.metrics.example resolves to 127.0.0.1: "},
		{name: "a password", web: passwords, flags: []string{"-u ann"}},
		{name: "a client's certificate",
			web: "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, " +
				"client_auth_type: RequireAndVerifyClientCert}\n",
			flags:   []string{"--cacert ", "--cert CERT_FILE --key KEY_FILE"},
			instead: "# http.web_config asks each client for a certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "it's here")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if c.signed != "" {
				writeSigned(t, dir, c.signed)
			} else {
				writeCertificate(t, dir, 1)
			}
			text := "data_dir: " + t.TempDir() +
				"\ndogstatsd: {udp: \"\", unixgram: \"\", unix: \"\"}\nhttp:\n  listen: 127.0.0.1:0\n"
			if c.web != "" {
				text += "  web_config: " + writeIn(t, dir, "web.yaml", c.web) + "\n"
			}
			if c.tenants {
				text += "  tenants_file: " + writeIn(t, dir, "tenants.yaml", tenantsText()) + "\n"
			}
			var banner bytes.Buffer
			if err := running(t, text).greet(&banner); err != nil {
				t.Fatal(err)
			}
			curl := lineOf(t, banner.String(), "curl ")
			for _, flag := range c.flags {
				if !strings.Contains(curl, flag) {
					t.Errorf("the line\n%s\nlacks the flag %s", curl, flag)
				}
			}
			if len(c.flags) == 0 && strings.Count(curl, " ") != 1 {
				t.Errorf("%s\nhas unexpected flags", curl)
			}
			token := writeIn(t, dir, "token", alpha+"\n")
			pasted := strings.NewReplacer("TOKEN_FILE has", "it has", "TOKEN_FILE", quoted(token),
				"CERT_FILE", quoted(filepath.Join(dir, "cert.pem")), "KEY_FILE", quoted(filepath.Join(dir, "key.pem")),
				"PASSWORD@", "fakepassword@")
			export := ""
			if c.tenants {
				export = lineOf(t, banner.String(), "export ") + "\n"
			}
			if out := paste(t, pasted.Replace(export+curl)); !strings.Contains(out, `"status":"success"`) {
				t.Errorf("the pasted line\n%s\nprinted\n%s\nwant a successful answer", curl, out)
			}
			if c.instead != "" {
				lineOf(t, banner.String(), c.instead)
				if strings.Contains(banner.String(), "\n  "+os.Args[0]) {
					t.Errorf("the banner suggests a command that gets no answer:\n%s", &banner)
				}
			} else {
				query := lineOf(t, banner.String(), os.Args[0]+" query ")
				if out := paste(t, pasted.Replace(export+query)); !strings.Contains(out, "no series match") {
					t.Errorf("the pasted line\n%s\nprinted\n%s\nwant \"no series match\"", query, out)
				}
			}
			for _, secret := range []string{alpha, "fakepassword", "$2y$"} {
				if strings.Contains(banner.String(), secret) {
					t.Errorf("the secret %s is in\n%s", secret, &banner)
				}
			}
		})
	}
}

// lineOf returns the first line of the banner that begins with the text `begin`.
func lineOf(t *testing.T, banner, begin string) string {
	t.Helper()
	for line := range strings.Lines(banner) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, begin) {
			return text
		}
	}
	t.Fatalf("no line begins with %q in\n%s", begin, banner)
	return ""
}

// paste runs commands as if a user pasted them, and enters the password when curl asks for it.
func paste(t *testing.T, text string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", text)
	cmd.Env = append(os.Environ(), asCommand+"=1", "NO_PROXY=*")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal, curl reads the password from Stdin
	cmd.Stdin = strings.NewReader("fakepassword\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Log(err)
	}
	return string(out)
}

// The banner uses the name in the certificate, since clients compare the host with that name.
func TestTheBannerNamesWhatTheCertificateHas(t *testing.T) {
	for _, c := range []struct {
		address  string
		names    []string
		ips      []string
		host, at string
	}{
		{"127.0.0.1", nil, []string{"127.0.0.1"}, "127.0.0.1", ""},
		{"127.0.0.1", []string{"localhost"}, nil, "localhost", ""},
		{"::", nil, []string{"127.0.0.1"}, "127.0.0.1", ""},
		{"0.0.0.0", []string{"metrics.example"}, nil, "metrics.example", "127.0.0.1"},
		{"10.0.0.7", []string{"metrics.example"}, nil, "metrics.example", "10.0.0.7"},
		{"10.0.0.7", nil, nil, "10.0.0.7", ""},
	} {
		leaf := &x509.Certificate{DNSNames: c.names}
		for _, ip := range c.ips {
			leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(ip))
		}
		got := client{host: c.address, port: "7125"}
		got.trust([]*x509.Certificate{leaf}, "cert.pem")
		if got.host != c.host || got.at != c.at || got.ca != "cert.pem" {
			t.Errorf("%+v: got the host %s at %q with the CA %q, want %s at %q with cert.pem",
				c, got.host, got.at, got.ca, c.host, c.at)
		}
	}
}
