package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
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

// tlsConfig returns the TLS of a web configuration file, nil if it has none, for listeners that do
// not speak HTTP. As for HTTP, file and certificates are read again for each connection.
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
