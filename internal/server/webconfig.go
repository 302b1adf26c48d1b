package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"
)

// readWebConfig reads a web configuration file of the exporter-toolkit, and the certificates that
// it names.
func readWebConfig(path string) (*web.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := web.Validate(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &web.Config{ // the toolkit's defaults
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, PreferServerCipherSuites: true},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(path))
	return c, nil
}

// tlsConfig returns the TLS configuration of a web configuration file, or nil if the file has none.
// It is for listeners that the exporter-toolkit does not serve. Like the toolkit, these listeners
// read the file and the certificates for each connection.
func tlsConfig(path string) (*tls.Config, error) {
	if path == "" {
		return nil, nil
	}
	c, err := readWebConfig(path)
	if err != nil || !c.TLSConfig.IsEnabled() {
		return nil, err
	}
	outer, err := web.ConfigToTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := readWebConfig(path)
		if err != nil {
			return nil, err
		}
		inner, err := web.ConfigToTLSConfig(&c.TLSConfig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		inner.NextProtos = outer.NextProtos
		return inner, nil
	}
	return outer, nil
}

// passwords remembers the last correct password of each user, since bcrypt is slow on purpose.
type passwords struct {
	mu     sync.Mutex
	fitted map[string][sha256.Size]byte // by user: a hash of the bcrypt hash and the correct password
}

func (p *passwords) fit(user, hash, password string) bool {
	sum := sha256.Sum256([]byte(hash + "\x00" + password))
	p.mu.Lock()
	known, ok := p.fitted[user]
	p.mu.Unlock()
	if ok && known == sum {
		return true
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fitted == nil {
		p.fitted = map[string][sha256.Size]byte{}
	}
	p.fitted[user] = sum
	return true
}

// nobody is a bcrypt hash for users who do not exist. Their passwords are checked against it, so that
// the time of the answer does not reveal which users exist.
const nobody = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

// basicAuth does what http.Request.BasicAuth does, without a request.
func basicAuth(header string) (user, password string, ok bool) {
	scheme, encoded, _ := strings.Cut(header, " ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	return strings.Cut(string(text), ":")
}
