package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	minSecret = 16 // characters of a cluster's secret

	// rounds is the number of rounds of PBKDF2, which slow down a search for a weak secret. The number
	// is from OWASP's cheat sheet on the storage of passwords, for SHA-256. These rounds take about
	// 0.1 s at the start of a process.
	rounds = 600_000

	pushPrefix = "freshet-push-1."
	checkLen   = 4 // bytes of the checksum at the end of a push secret, which detects typing errors
)

// Secret proves that a process belongs to a cluster. A cluster's secret makes certificates of nodes
// and of collectors. A push secret only makes certificates of collectors, and verifies certificates of
// nodes.
type Secret struct {
	nodes   ed25519.PrivateKey // signs the certificates of nodes; nil in a push secret
	node    ed25519.PublicKey  // verifies the certificates of nodes
	pushers ed25519.PrivateKey // signs the certificates of collectors
}

// NewSecret returns the text of a new secret for a cluster.
func NewSecret() string { return rand.Text() + rand.Text() }

// ReadSecret reads a secret from a file.
func ReadSecret(file string) (*Secret, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's secret: %w", err)
	}
	s, err := ParseSecret(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's secret: %s: %w", file, err)
	}
	return s, nil
}

// ParseSecret parses the text of a cluster's secret or of a push secret. It ignores space around the
// text.
func ParseSecret(text string) (*Secret, error) {
	text = strings.TrimSpace(text)
	if encoded, push := strings.CutPrefix(text, pushPrefix); push {
		return parsePush(encoded)
	}
	if n := len([]rune(text)); n < minSecret {
		return nil, fmt.Errorf("the secret has %d characters, but at least %d are needed; "+
			"make one with: freshet cluster secret", n, minSecret)
	}
	root, err := pbkdf2.Key(sha256.New, text, []byte("freshet cluster secret 1"), rounds, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive keys from the secret: %w", err)
	}
	nodes, err := deriveKey(root, "freshet CA of nodes 1")
	if err != nil {
		return nil, err
	}
	pushers, err := deriveKey(root, "freshet CA of collectors 1")
	if err != nil {
		return nil, err
	}
	return &Secret{nodes: nodes, node: publicKey(nodes), pushers: pushers}, nil
}

func deriveKey(root []byte, purpose string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Expand(sha256.New, root, purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive keys from the secret: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func publicKey(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

var errPush = errors.New("the push secret is damaged or cut; " +
	"make it again on a node with: freshet cluster secret --push")

func parsePush(encoded string) (*Secret, error) {
	const half = ed25519.SeedSize
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(b) != half+ed25519.PublicKeySize+checkLen ||
		!bytes.Equal(b[len(b)-checkLen:], checksum(b[:len(b)-checkLen])) {
		return nil, errPush
	}
	return &Secret{pushers: ed25519.NewKeyFromSeed(b[:half]), node: bytes.Clone(b[half : len(b)-checkLen])}, nil
}

func checksum(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:checkLen]
}

// Push returns the text of the push secret: the seed of the collectors' CA, the public key of the
// nodes' CA, and a checksum of both.
func (s *Secret) Push() string {
	b := append(s.pushers.Seed(), s.node...)
	return pushPrefix + base64.RawURLEncoding.EncodeToString(append(b, checksum(b)...))
}

// OnlyPush reports whether the secret is a push secret.
func (s *Secret) OnlyPush() bool { return s.nodes == nil }
